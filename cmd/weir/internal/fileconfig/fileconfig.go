// Package fileconfig has the parts of a configuration file that all servers of weir have: the certificate of a listener,
// the stores, the admin pages. Packages gatewayconfig and rlsconfig have the sections with these parts.
//
// The doc tag of a field is its description, in the JSON schema and in the reference pages.
package fileconfig

import (
	"cmp"
	"errors"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weir-go/weir/internal/validate"
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/rate"
	"github.com/weir-go/weir/reload"
	_ "github.com/weir-go/weir/reload/adaptive" // the files of weir can have every kind
	"github.com/weir-go/weir/store"
)

// MaxSize bounds a file, in bytes. Those of weir rls can have a rule for each of many customers: this is room for some
// 70,000 rules.
const MaxSize = 8 << 20

// The defaults of every server.
const (
	DefaultAdmin           = "127.0.0.1:9900"
	DefaultShutdownTimeout = 30 * time.Second
)

// Off is the admin address of a server without admin pages.
const Off = "off"

// unixPrefix begins an address to listen on that is the path of a socket.
const unixPrefix = "unix:"

// Common is what a file says for every server.
type Common struct {
	Admin           string           `yaml:"admin,omitempty" reload:"fixed,default=127.0.0.1:9900" doc:"The address of the dashboard, /metrics, /live and /ready, or off. Without a host, as in :9900, it is on the loopback interface only; for all interfaces write 0.0.0.0:9900. 127.0.0.1:9900 unless set."`
	ShutdownDelay   time.Duration    `yaml:"shutdown_delay,omitempty" doc:"How long requests are still answered after the signal to stop, while /ready already fails, so that load balancers stop using the server; 0s unless set."`
	ShutdownTimeout time.Duration    `yaml:"shutdown_timeout,omitempty" reload:"default=30s" doc:"How long the requests that run have to end when the server stops, after shutdown_delay; 30s unless set."`
	Dashboard       Dashboard        `yaml:"dashboard,omitempty" doc:"The dashboard on the admin listener."`
	Pprof           bool             `yaml:"pprof,omitempty" reload:"fixed" doc:"Serve /debug/pprof/ on the admin listener."`
	Ready           Ready            `yaml:"ready,omitempty" doc:"What /ready on the admin listener answers."`
	Stores          map[string]Store `yaml:"stores,omitempty" reload:"fixed" doc:"The stores that limiters of the file can name, by name."`
}

// WithDefaults returns c with the value that applies in every field that a file can leave out.
func (c Common) WithDefaults() Common {
	c.Admin = Loopback(cmp.Or(c.Admin, DefaultAdmin))
	c.ShutdownTimeout = cmp.Or(c.ShutdownTimeout, DefaultShutdownTimeout)
	return c
}

// Check checks c for a server that listens on the address.
func (c Common) Check(p *validate.Problems, listen string) {
	if c.Admin != "" && c.Admin != Off {
		CheckListen(p, "Admin", c.Admin)
		if strings.HasPrefix(c.Admin, unixPrefix) {
			p.Add("Admin", c.Admin, "must be host:port, or off")
		}
	}
	if SameListener(c.WithDefaults().Admin, listen) {
		p.Add("Admin", c.Admin, "must not be the address of {Listen}")
	}
	p.NotNegative("ShutdownDelay", c.ShutdownDelay)
	p.NotNegative("ShutdownTimeout", c.ShutdownTimeout)
}

// Names gives the stores their names. open returns a store, the same one for each call, which stays open as long as the registry; if
// nil, a file can be checked and explained, but not put in force.
func (c Common) Names(n *reload.Names, open func(name string, s Store) (*store.Store, error)) {
	for name, s := range c.Stores {
		n.Store(name, s, func() (*store.Store, error) {
			if open == nil {
				return nil, ErrNoRuntime
			}
			return open(name, s)
		})
	}
}

// ErrNoRuntime is the error of building a pipeline of a file that was parsed to be checked.
var ErrNoRuntime = errors.New("weir: the file can only be checked here")

// TLS is the certificate of a listener. The files are read again when they change.
type TLS struct {
	Certificate string `yaml:"certificate" doc:"The file with the certificate and its intermediate certificates, in PEM form."`
	Key         string `yaml:"key" doc:"The file with the private key, in PEM form."`
}

// Validate checks the file names.
func (t TLS) Validate() error {
	var p validate.Problems
	for _, f := range []struct{ name, value string }{{"Certificate", t.Certificate}, {"Key", t.Key}} {
		if f.value == "" {
			p.Add(f.name, nil, "must not be empty")
		}
	}
	return p.Err("weir")
}

// Dashboard says what the dashboard shows and lets do.
type Dashboard struct {
	ShowKeys  bool   `yaml:"show_keys,omitempty" reload:"fixed" doc:"Show the keys of partitioned limiters as they are; a hash of them is shown unless set."`
	TokenFile string `yaml:"token_file,omitempty" reload:"fixed" doc:"The file with the password for actions, such as overriding a limit; the user name says who acts. Without a file, the dashboard has no actions."`
}

// Ready says what a server answers when it is asked whether it can take requests.
type Ready struct {
	RequireStores bool `yaml:"require_stores,omitempty" doc:"Fail while a store is unavailable; unless set, /ready only reports it."`
}

// A Store is where the limits are that all servers with the same store share. It has one of Redis and Postgres.
type Store struct {
	Redis        string        `yaml:"redis,omitempty" doc:"The URL of a Redis server, such as redis://redis.internal:6379/0. This or postgres must be set."`
	Postgres     string        `yaml:"postgres,omitempty" doc:"The URL of a PostgreSQL database, such as postgres://weir@db.internal/limits. This or redis must be set."`
	PasswordFile string        `yaml:"password_file,omitempty" doc:"The file with the password, so that the URL has none."`
	Prefix       string        `yaml:"prefix,omitempty" doc:"For Redis: what the names of the keys begin with; weir unless set."`
	Schema       string        `yaml:"schema,omitempty" doc:"For PostgreSQL: the schema with the tables; weir unless set."`
	Migrate      bool          `yaml:"migrate,omitempty" doc:"For PostgreSQL: make the tables at the start if they are not there."`
	CallTimeout  time.Duration `yaml:"call_timeout,omitempty" doc:"How long a call of the store can take before the store counts as unavailable; 500 ms unless set."`
}

// Validate checks that the store is one, and what fits it.
func (s Store) Validate() error {
	var p validate.Problems
	switch {
	case s.Redis == "" && s.Postgres == "":
		p.Add("", nil, "must have {Redis} or {Postgres}")
	case s.Redis != "" && s.Postgres != "":
		p.Add("", nil, "must have only one of {Redis} and {Postgres}")
	case s.Redis != "":
		checkStoreURL(&p, "Redis", s.Redis, "redis", "rediss", "unix")
		for name, set := range map[string]bool{"Schema": s.Schema != "", "Migrate": s.Migrate} {
			if set {
				p.Add(name, nil, "must be left out: it is for {Postgres}")
			}
		}
	default:
		checkStoreURL(&p, "Postgres", s.Postgres, "postgres", "postgresql")
		if s.Prefix != "" {
			p.Add("Prefix", nil, "must be left out: it is for {Redis}")
		}
	}
	p.NotNegative("CallTimeout", s.CallTimeout)
	return p.Err("weir")
}

// Words says in a word what the store is. They do not have its URL, which can have a password.
func (s Store) Words() string {
	if s.Redis != "" {
		return "Redis"
	}
	return "PostgreSQL"
}

// checkStoreURL checks the URL of a store. It can have a password, so messages do not show it.
func checkStoreURL(p *validate.Problems, path, text string, schemes ...string) {
	u, err := url.Parse(text)
	if err != nil || !slices.Contains(schemes, u.Scheme) || u.Host == "" && u.Path == "" {
		p.Add(path, nil, "must be a URL that begins with %s://", strings.Join(schemes, ":// or "))
	}
}

// CheckListen checks an address to listen on: host:port, or unix: and the path of a socket.
func CheckListen(p *validate.Problems, path, address string) {
	if socket, ok := strings.CutPrefix(address, unixPrefix); ok {
		if socket == "" {
			p.Add(path, address, "must have the path of a socket after unix:")
		}
		return
	}
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		p.Add(path, address, "must be host:port, such as :8080, 127.0.0.1:8080 or [::1]:8080")
		return
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || strconv.FormatUint(n, 10) != port {
		p.Add(path, address, "must have a port from 0 to 65535")
	}
	if strings.Contains(host, ":") && !IsIPv6(host) {
		p.Add(path, address, "must have an IPv6 address in the brackets")
	}
}

// IsIPv6 reports whether the text is an IPv6 address.
func IsIPv6(text string) bool {
	addr, err := netip.ParseAddr(text)
	return err == nil && addr.Is6()
}

// Loopback returns the address with a host: without one, the admin pages would be on all interfaces.
func Loopback(address string) string {
	if host, port, err := net.SplitHostPort(address); err == nil && host == "" {
		return net.JoinHostPort("127.0.0.1", port)
	}
	return address
}

// SameListener reports whether two addresses cannot both be listened on.
func SameListener(a, b string) bool { return a == b && !strings.HasSuffix(a, ":0") }

// Socket returns the path of the socket of an address that begins with unix:.
func Socket(address string) (path string, ok bool) { return strings.CutPrefix(address, unixPrefix) }

// Members calls do with what the file says about the limiter and, if it is a chain, about those in it.
func Members(f *reload.File, name string, do func(reload.LimiterInfo)) {
	seen := make(map[string]bool)
	var visit func(name string)
	visit = func(name string) {
		info, ok := f.Limiter(name)
		if !ok || seen[name] {
			return
		}
		seen[name] = true
		do(info)
		for _, m := range info.Members {
			visit(m)
		}
	}
	visit(name)
}

// Adapting returns the kind of the limiter, or of one in its chain, that learns from the outcomes of requests.
func Adapting(f *reload.File, name string) (kind string) {
	Members(f, name, func(info reload.LimiterInfo) {
		if info.Kind == "adaptive" || info.Kind == "throttler" {
			kind = info.Kind
		}
	})
	return kind
}

// LimitsOf returns the limits that the options of a limiter are; zero if they are options of another sort.
func LimitsOf(options any) rate.Limits {
	o, _ := options.(limiter.Options)
	return rate.Of(o)
}

// When returns the text if the condition holds, for sentences about a file.
func When(condition bool, text string) string {
	if !condition {
		return ""
	}
	return text
}
