// Package fileconfig has the parts of a configuration file that all servers of weir have: the certificate of a listener,
// the stores, the admin pages. Packages gatewayconfig and rlsconfig have the sections with these parts.
//
// The doc tag of a field is its description, in the JSON schema and in the reference pages.
package fileconfig

import (
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weir-go/weir/internal/validate"
)

// MaxSize bounds a file, in bytes. Those of weir rls can have a rule for each of many customers: this is room for some
// 70,000 rules.
const MaxSize = 8 << 20

// DefaultAdmin is the address of the admin pages of every server.
const DefaultAdmin = "127.0.0.1:9900"

// Off is the admin address of a server without admin pages.
const Off = "off"

// unixPrefix begins an address to listen on that is the path of a socket.
const unixPrefix = "unix:"

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

// CheckAdmin checks the address of the admin pages, which can be empty or [Off].
func CheckAdmin(p *validate.Problems, path, address string) {
	if address == "" || address == Off {
		return
	}
	CheckListen(p, path, address)
	if strings.HasPrefix(address, unixPrefix) {
		p.Add(path, address, "must be host:port, or off")
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
