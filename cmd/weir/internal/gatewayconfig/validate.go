package gatewayconfig

import (
	"fmt"
	"maps"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/weir-go/weir/internal/validate"
	"github.com/weir-go/weir/transport/weirhttp"
)

// unixPrefix begins an address to listen on that is the path of a socket.
const unixPrefix = "unix:"

// Validate checks the fields of g that are not in a type with a Validate method of its own, and compares its parts with
// each other.
func (g Gateway) Validate() error {
	var p validate.Problems
	if g.Listen != "" {
		checkListen(&p, "Listen", g.Listen)
	}
	if g.Admin != "" && g.Admin != Off {
		checkListen(&p, "Admin", g.Admin)
		if strings.HasPrefix(g.Admin, unixPrefix) {
			p.Add("Admin", g.Admin, "must be host:port, or off")
		}
	}
	if full := g.WithDefaults(); full.Admin == full.Listen && !strings.HasSuffix(full.Listen, ":0") {
		p.Add("Admin", g.Admin, "must not be the address of {Listen}")
	}
	if g.TLS != nil && g.H2C {
		p.Add("H2C", nil, "must not be set with {TLS}, which has HTTP/2 anyway")
	}
	if g.ClientAddressHeader != "" && !isToken(g.ClientAddressHeader) {
		p.Add("ClientAddressHeader", g.ClientAddressHeader, "must be the name of a header")
	}
	p.NotNegative("ShutdownDelay", g.ShutdownDelay)
	p.NotNegative("ShutdownTimeout", g.ShutdownTimeout)
	g.checkNames(&p)
	if cycle := g.keyCycle(); cycle != nil {
		p.Add(fmt.Sprintf("Keys[%s].Composite", cycle[0]), nil, "must not be made of itself: %s", strings.Join(cycle, " -> "))
	} else if name := g.longKey(); name != "" {
		p.Add(fmt.Sprintf("Keys[%s].Composite", name), nil, "must be made of at most %d keys, with the keys of its keys", maxKeyParts)
	}
	g.checkRoutes(&p)
	return p.Err("gateway")
}

// checkNames checks the names that the file chooses.
func (g Gateway) checkNames(p *validate.Problems) {
	for _, name := range slices.Sorted(maps.Keys(g.Policies)) {
		if name == weirhttp.GlobalPolicy {
			p.Add(fmt.Sprintf("Policies[%s]", name), nil, "must have another name, which stands for all policies of global in events")
		}
	}
	for i, name := range repeated(g.Global) {
		p.Add(fmt.Sprintf("Global[%d]", i), name, "must not be there twice")
	}
}

// repeated returns the texts that stand earlier in the list, by their position.
func repeated(all []string) map[int]string {
	found, seen := make(map[int]string), make(map[string]bool)
	for i, text := range all {
		if seen[text] {
			found[i] = text
		}
		seen[text] = true
	}
	return found
}

// checkListen checks an address to listen on.
func checkListen(p *validate.Problems, path, address string) {
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
	if strings.Contains(host, ":") && !isIPv6(host) {
		p.Add(path, address, "must have an IPv6 address in the brackets")
	}
}

// Validate checks the file names.
func (t TLS) Validate() error {
	var p validate.Problems
	for _, f := range []struct{ name, value string }{{"Certificate", t.Certificate}, {"Key", t.Key}} {
		if f.value == "" {
			p.Add(f.name, nil, "must not be empty")
		}
	}
	return p.Err("gateway")
}

// Validate checks the addresses and what they need.
func (u Upstream) Validate() error {
	var p validate.Problems
	if len(u.Addresses) == 0 {
		p.Add("Addresses", nil, "must have at least one address")
	}
	plain, secure := false, false
	texts := make([]string, len(u.Addresses))
	for i, a := range u.Addresses {
		plain, secure = plain || a.Scheme == "http", secure || a.Scheme == "https"
		texts[i] = a.String()
	}
	for i, text := range repeated(texts) {
		p.Add(fmt.Sprintf("Addresses[%d]", i), text, "must not be there twice")
	}
	switch {
	case u.TLS != nil && !secure && plain:
		p.Add("TLS", nil, "must be left out: no address has https")
	case u.H2C && !plain && secure:
		p.Add("H2C", nil, "must be left out: no address has http")
	case plain && secure:
		p.Add("Addresses", nil, "must have the same scheme, http or https")
	}
	p.NotNegative("DialTimeout", u.DialTimeout)
	p.NotNegative("ResponseHeaderTimeout", u.ResponseHeaderTimeout)
	return p.Err("gateway")
}

// Validate checks that the certificate has its key.
func (t UpstreamTLS) Validate() error {
	var p validate.Problems
	if (t.Certificate == "") != (t.Key == "") {
		p.Add("", nil, "must have {Certificate} and {Key}, or neither")
	}
	return p.Err("gateway")
}

// Validate checks what does not need the limiter.
func (o Policy) Validate() error {
	var p validate.Problems
	p.NotNegative("Window", o.Window)
	p.NotNegative("Timeout", o.Timeout)
	if o.MaxWait < -1 {
		p.Add("MaxWait", o.MaxWait, "must be at least 0, or off")
	}
	if o.Status != 0 && (o.Status < 400 || o.Status > 599) {
		p.Add("Status", o.Status, "must be from 400 to 599")
	}
	if o.Window != 0 && o.Quota == 0 {
		p.Add("Window", nil, "must be left out without {Quota}")
	}
	if o.Shadow && o.MaxWait > 0 {
		p.Add("MaxWait", nil, "must be left out with {Shadow}, which never waits")
	}
	return p.Err("gateway")
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
	return p.Err("gateway")
}

// checkStoreURL checks the URL of a store. It can have a password, so messages do not show it.
func checkStoreURL(p *validate.Problems, path, text string, schemes ...string) {
	u, err := url.Parse(text)
	if err != nil || !slices.Contains(schemes, u.Scheme) || u.Host == "" && u.Path == "" {
		p.Add(path, nil, "must be a URL that begins with %s://", strings.Join(schemes, ":// or "))
	}
}
