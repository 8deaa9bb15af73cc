package gatewayconfig

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"

	"github.com/weir-go/weir/internal/validate"

	"github.com/weir-go/weir/cmd/weir/internal/fileconfig"
)

// A Pattern is the match of a route in its parts.
type Pattern struct {
	Method string // "": any
	Host   string // "": any
	Path   string // with the wildcards
}

// Pattern returns the parts of the route's match.
func (r Route) Pattern() Pattern {
	method, rest, found := strings.Cut(r.Match, " ")
	if !found {
		method, rest = "", r.Match
	}
	rest = strings.TrimLeft(rest, " \t")
	i := strings.IndexByte(rest, '/')
	if i < 0 {
		return Pattern{method, rest, ""}
	}
	return Pattern{method, rest[:i], rest[i:]}
}

// Wildcards returns the names of the wildcards in the path.
func (p Pattern) Wildcards() (names []string) {
	for _, m := range wildcard.FindAllStringSubmatch(p.Path, -1) {
		names = append(names, m[1])
	}
	return names
}

var wildcard = regexp.MustCompile(`\{([\p{L}_][\p{L}\p{N}_]*)(?:\.\.\.)?\}`)

// Validate checks what does not need the other routes.
func (r Route) Validate() error {
	var p validate.Problems
	if err := handle(http.NewServeMux(), r.Match); err != nil {
		p.Include("Match", fmt.Errorf("%w; a pattern is such as GET api.example.com/orders/{id}", err))
		return p.Err("gateway")
	}
	pattern := r.Pattern()
	switch {
	case pattern.Method != strings.ToUpper(pattern.Method):
		p.Add("Match", r.Match, "must have the method in capital letters")
	case strings.Contains(pattern.Host, ":"):
		p.Add("Match", r.Match, "must have a host without a port: the port of a request does not count")
	case pattern.Host != strings.ToLower(pattern.Host):
		p.Add("Match", r.Match, "must have the host in small letters")
	case pattern.Method == http.MethodConnect:
		p.Add("Match", r.Match, "must have another method: the gateway makes no tunnels")
	}
	for i, name := range repeated(r.Policies) {
		p.Add(fmt.Sprintf("Policies[%d]", i), name, "must not be there twice")
	}
	r.checkStripPrefix(&p, pattern)
	return p.Err("gateway")
}

// checkStripPrefix checks that the path of every request of the route begins with what is removed.
func (r Route) checkStripPrefix(p *validate.Problems, pattern Pattern) {
	rest, begins := strings.CutPrefix(pattern.Path, r.StripPrefix)
	switch {
	case r.StripPrefix == "":
	case r.StripPrefix[0] != '/' || strings.HasSuffix(r.StripPrefix, "/"):
		p.Add("StripPrefix", r.StripPrefix, "must begin with a slash and not end with one")
	case strings.Contains(r.StripPrefix, "{"):
		p.Add("StripPrefix", r.StripPrefix, "must have no wildcard")
	case !begins || rest != "" && rest[0] != '/':
		p.Add("StripPrefix", r.StripPrefix, "must be the beginning of the path in {Match}, up to a slash")
	}
}

// maxRoutes bounds how long it takes to find routes that conflict.
const maxRoutes = 5000

// checkRoutes checks the routes against each other and against the policies of all routes.
func (g Gateway) checkRoutes(p *validate.Problems) {
	if len(g.Routes) == 0 {
		p.Add("Routes", nil, "must have at least one route")
	}
	if len(g.Routes) > maxRoutes {
		p.Add("Routes", len(g.Routes), "must have at most %d routes", maxRoutes)
		return
	}
	mux, global := http.NewServeMux(), make(map[string]bool)
	for _, name := range g.Global {
		global[name] = true
	}
	for i, r := range g.Routes {
		if handle(http.NewServeMux(), r.Match) != nil {
			continue // Route.Validate reports it
		}
		if err := handle(mux, r.Match); err != nil {
			p.Include(fmt.Sprintf("Routes[%d].Match", i), err)
		}
		for j, name := range r.Policies {
			if !r.Exempt && global[name] {
				p.Add(fmt.Sprintf("Routes[%d].Policies[%d]", i, j), name, "must be left out: it is in global already")
			}
		}
	}
}

// handle registers a pattern, and returns what is wrong with it, or with which other pattern it conflicts.
func handle(mux *http.ServeMux, pattern string) (err error) {
	defer func() {
		if reason := recover(); reason != nil {
			err = fmt.Errorf("%s", patternProblem(fmt.Sprint(reason)))
		}
	}()
	mux.Handle(pattern, http.NotFoundHandler())
	return nil
}

var (
	conflict = regexp.MustCompile(`(?s)^pattern ".*" \(registered at .*\) conflicts with pattern (".*") \(registered at .*\):\n(.*)$`)
	parsing  = regexp.MustCompile(`(?s)^parsing ".*": (?:at offset \d+: )?(.*)$`)
)

// patternProblem returns the message of package net/http without the places in this program.
func patternProblem(message string) string {
	if m := conflict.FindStringSubmatch(message); m != nil {
		other, err := strconv.Unquote(m[1])
		if err != nil {
			other = m[1]
		}
		return fmt.Sprintf("it conflicts with the route %q: %s", other, strings.Join(strings.Fields(m[2]), " "))
	}
	if m := parsing.FindStringSubmatch(message); m != nil {
		return m[1]
	}
	return strings.TrimPrefix(message, "http: ")
}

// An Address is the URL of an upstream server: scheme, host and port, and a path that stands before the path of each
// request, without a slash at its end. It has no user, query or fragment.
type Address struct{ url.URL }

// UnmarshalText reads a URL such as http://10.0.0.7:8080.
func (a *Address) UnmarshalText(text []byte) error {
	const wanted = "must be a URL such as http://10.0.0.7:8080 or https://[2001:db8::7]"
	u, err := url.Parse(string(text))
	if err != nil {
		if !strings.Contains(string(text), "://") {
			return errors.New(wanted + ": http:// or https:// is missing")
		}
		if inner, ok := errors.AsType[*url.Error](err); ok {
			err = inner.Err
		}
		return fmt.Errorf("%s: %w", wanted, err)
	}
	switch host := u.Hostname(); {
	case u.Host == "" && !strings.Contains(string(text), "://"):
		return errors.New(wanted + ": http:// or https:// is missing")
	case u.Scheme != "http" && u.Scheme != "https":
		return fmt.Errorf("%s: the scheme is %q", wanted, u.Scheme)
	case host == "":
		return errors.New(wanted + ": the host is missing")
	case u.User != nil:
		return errors.New(wanted + ", without a user or a password")
	case u.RawQuery != "" || u.ForceQuery || u.Fragment != "":
		return errors.New(wanted + ", without a query or a fragment")
	case u.Port() != "" && !validPort(u.Port()), strings.HasSuffix(u.Host, ":"):
		return fmt.Errorf("%s: the port must be from 1 to 65535", wanted)
	case strings.Contains(host, ":") && !fileconfig.IsIPv6(host):
		return fmt.Errorf("%s: %q is no IPv6 address", wanted, host)
	case hasDotSegment(u.Path):
		return errors.New(wanted + ", without . or .. in the path")
	}
	u.Path, u.RawPath = strings.TrimRight(u.Path, "/"), strings.TrimRight(u.RawPath, "/")
	a.URL = *u
	return nil
}

// MarshalText is the opposite of UnmarshalText.
func (a Address) MarshalText() ([]byte, error) { return []byte(a.String()), nil }

// String returns the URL.
func (a Address) String() string { return a.URL.String() }

// Dial returns the address to connect to, host:port.
func (a Address) Dial() string {
	port := a.Port()
	if port == "" {
		port = "80"
		if a.Scheme == "https" {
			port = "443"
		}
	}
	return net.JoinHostPort(a.Hostname(), port)
}

func validPort(text string) bool {
	n, err := strconv.ParseUint(text, 10, 16)
	return err == nil && n > 0
}

func hasDotSegment(path string) bool {
	for segment := range strings.SplitSeq(path, "/") {
		if segment == "." || segment == ".." {
			return true
		}
	}
	return false
}
