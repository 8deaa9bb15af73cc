package gatewayconfig

import (
	"cmp"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/weir-go/weir/internal/validate"
	"github.com/weir-go/weir/reload"
	"github.com/weir-go/weir/transport/weirhttp"

	"github.com/weir-go/weir/cmd/weir/internal/fileconfig"
)

// Validate checks the fields of g that are not in a type with a Validate method of its own, and compares its parts with
// each other.
func (g Gateway) Validate() error {
	var p validate.Problems
	if g.Listen != "" {
		fileconfig.CheckListen(&p, "Listen", g.Listen)
	}
	g.Common.Check(&p, cmp.Or(g.Listen, DefaultListen))
	if g.TLS != nil && g.H2C {
		p.Add("H2C", nil, "must not be set with {TLS}, which has HTTP/2 anyway")
	}
	if g.ClientAddressHeader != "" && !isToken(g.ClientAddressHeader) {
		p.Add("ClientAddressHeader", g.ClientAddressHeader, "must be the name of a header")
	}
	if g.Via != "" && !isToken(g.Via) {
		p.Add("Via", g.Via, "must be a name of letters, digits and -._, or off")
	}
	g.checkNames(&p)
	g.checkRoutes(&p)
	return p.Err("gateway")
}

// checkNames checks the names that the file chooses.
func (g Gateway) checkNames(p *validate.Problems) {
	for _, name := range slices.Sorted(maps.Keys(g.Policies)) {
		if name == "global" {
			p.Add(fmt.Sprintf("Policies[%s]", name), nil, "must have another name, which stands for all policies of global in events")
		}
	}
	for _, name := range slices.Sorted(maps.Keys(g.Keys)) {
		for i, part := range g.Keys[name].Composite {
			if g.Keys[part].Composite != nil {
				p.Add(fmt.Sprintf("Keys[%s].Composite[%d]", name, i), part, "must not be composite: list what it is made of")
			}
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

// Check compares g with the rest of its file: what the policies and routes name must be able to do what they need.
func (g Gateway) Check(f *reload.File) error {
	var p validate.Problems
	for _, name := range f.Pipelines() {
		if strings.HasPrefix(name, PipelineName+"/") {
			p.Add("", nil, "cannot be with a pipeline called %s: names that begin with %s/ are for the addresses of upstreams", name, PipelineName)
		}
	}
	needs := make(map[string][]string) // the wildcards that the key of each policy needs
	for _, name := range slices.Sorted(maps.Keys(g.Policies)) {
		limiter := g.Policies[name].Limiter
		if kind := fileconfig.Adapting(f, limiter); kind != "" {
			p.Add(fmt.Sprintf("Policies[%s].Limiter", name), limiter,
				"must not be or contain the kind %s, which learns from what it admits: put it into a rate_limiter of the route's pipeline", kind)
		}
		needs[name] = g.wildcards(f, limiter)
	}
	for i, r := range g.Routes {
		has := r.Pattern().Wildcards()
		for _, name := range g.PoliciesOf(r) {
			for _, wanted := range needs[name] {
				if !slices.Contains(has, wanted) {
					p.Include(fmt.Sprintf("Routes[%d].Match", i), fmt.Errorf(
						"it needs the wildcard {%s}, which is the key of the policy %s; without it all requests of the route have one key", wanted, name))
				}
			}
		}
	}
	return p.Err("gateway")
}

// wildcards returns the names of the wildcards that are the key of the limiter, or of one in its chain.
func (g Gateway) wildcards(f *reload.File, limiter string) (names []string) {
	fileconfig.Members(f, limiter, func(info reload.LimiterInfo) {
		if info.Key == "" {
			return
		}
		for _, k := range g.usedKeys(info.Key) {
			if k.PathValue != "" && !slices.Contains(names, k.PathValue) {
				names = append(names, k.PathValue)
			}
		}
	})
	slices.Sort(names)
	return names
}

// Warnings returns what a valid file has that is without effect or dangerous, one line each.
func Warnings(f *reload.File) (all []string) {
	g, ok := reload.SectionOf[Gateway](f, Field)
	if !ok {
		return nil
	}
	add := func(format string, args ...any) { all = append(all, fmt.Sprintf(format, args...)) }
	for i, r := range g.Routes {
		method := r.Pattern().Method
		for _, s := range Steps(f, r.Pipeline) {
			switch kind := s.Kind; {
			case kind == "retry" && (method == http.MethodPost || method == http.MethodPatch):
				add("gateway.routes[%d]: the pipeline %s retries, but a %s is only sent again if it has an Idempotency-Key", i, r.Pipeline, method)
			case kind == "hedging" && method != "" && !Safe(method):
				add("gateway.routes[%d]: the pipeline %s hedges, but a %s is never sent twice at once", i, r.Pipeline, method)
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(g.Policies)) {
		p := g.Policies[name]
		if info, _ := f.Limiter(p.Limiter); p.Headers != nil && *p.Headers != weirhttp.NoHeaders && p.fields(info) == "" {
			add("gateway.policies.%s: it has no headers for clients, because the quota of its limiter is not known; set quota and window", name)
		}
	}
	for l := range f.AllLimiters() {
		if l.Partitioned && l.Store == "" && l.MaxPartitions == 0 && g.chosenByClients(l.Key) {
			add("the limiter %s has no max_partitions, which bounds its memory: clients can make up keys", l.Name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(g.Upstreams)) {
		if u := g.Upstreams[name]; u.Health != nil && len(u.Addresses) == 1 {
			add("gateway.upstreams.%s.health is without effect: there is one address, which is always asked", name)
		}
	}
	used := g.used(f)
	for _, of := range []struct {
		field string
		names []string
	}{
		{"upstreams", slices.Collect(maps.Keys(g.Upstreams))},
		{"policies", slices.Collect(maps.Keys(g.Policies))},
		{"keys", slices.Collect(maps.Keys(g.Keys))},
		{"stores", slices.Collect(maps.Keys(g.Stores))},
	} {
		slices.Sort(of.names)
		for _, name := range of.names {
			if !used[of.field+"."+name] {
				add("gateway.%s.%s is not used", of.field, name)
			}
		}
	}
	return all
}

// chosenByClients reports whether a client can make up many keys of that name.
func (g Gateway) chosenByClients(key string) bool {
	for _, k := range g.usedKeys(key) {
		if k.Address != nil || k.Header != "" || k.PathValue != "" || k.JWTClaim != nil && k.JWTClaim.Unverified {
			return true
		}
	}
	return false
}

// A Step is a strategy of a pipeline, or of one that it embeds.
type Step struct {
	reload.StrategyInfo
	In string // the pipeline that has it
}

// Steps returns what the file says about the strategies of a pipeline, and of the pipelines that it embeds, each once.
func Steps(f *reload.File, pipeline string) (all []Step) {
	seen := make(map[string]bool)
	var visit func(pipeline string)
	visit = func(pipeline string) {
		for _, s := range f.Strategies(pipeline) {
			if s.Pipeline == "" {
				all = append(all, Step{s, pipeline})
			} else if !seen[s.Pipeline] {
				seen[s.Pipeline] = true
				visit(s.Pipeline)
			}
		}
	}
	visit(pipeline)
	return all
}

// Safe reports whether requests with the method change nothing, so that they can be sent twice at once.
func Safe(method string) bool {
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace:
		return true
	default:
		return false
	}
}

// used returns what the routes and the limiters of the file use, as field.name.
func (g Gateway) used(f *reload.File) map[string]bool {
	used := make(map[string]bool)
	for _, r := range g.Routes {
		used["upstreams."+r.Upstream] = true
		for _, name := range g.PoliciesOf(r) {
			used["policies."+name] = true
		}
	}
	for l := range f.AllLimiters() {
		used["stores."+l.Store] = true
		for name := range g.usedKeys(l.Key) {
			used["keys."+name] = true
		}
	}
	return used
}

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
