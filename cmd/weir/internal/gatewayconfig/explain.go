package gatewayconfig

import (
	"cmp"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/weir-go/weir/internal/durationtext"
	"github.com/weir-go/weir/reload"
	"github.com/weir-go/weir/strategies/circuitbreaker"
	"github.com/weir-go/weir/transport/weirhttp"

	"github.com/weir-go/weir/cmd/weir/internal/fileconfig"
)

// Explain returns what the gateway does, in words, one line for each thing that has a name.
func (g Gateway) Explain(f *reload.File) string {
	g = g.WithDefaults()
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	line("listens on %s%s%s; admin: %s", g.Listen, fileconfig.When(g.TLS != nil, " with TLS"), fileconfig.When(g.H2C, ", also HTTP/2 without TLS"), g.Admin)
	line("stops within %s", durationtext.Of(g.ShutdownDelay+g.ShutdownTimeout))
	if len(g.TrustedProxies) > 0 {
		line("believes %s of %s", g.ClientAddressHeader, joinNetworks(g.TrustedProxies))
	}
	for _, name := range slices.Sorted(maps.Keys(g.Stores)) {
		line("store %s: %s", name, g.Stores[name].Words())
	}
	for _, name := range slices.Sorted(maps.Keys(g.Keys)) {
		line("key %s: %s", name, g.Keys[name].words())
	}
	for _, name := range slices.Sorted(maps.Keys(g.Upstreams)) {
		line("upstream %s: %s", name, g.Upstreams[name].words())
	}
	for _, name := range slices.Sorted(maps.Keys(g.Policies)) {
		line("policy %s: %s", name, strings.Join(g.Policies[name].Words(f), "; "))
	}
	for _, r := range g.Routes {
		line("route %s: %s", r.Match, r.words(g))
	}
	return b.String()
}

// Words returns what a policy, which must have its defaults, does with a request: first what it takes.
func (o Policy) Words(f *reload.File) []string {
	info, _ := f.Limiter(o.Limiter)
	permits := "a permit"
	if o.Cost > 1 {
		permits = fmt.Sprintf("%d permits", o.Cost)
	}
	words := []string{fmt.Sprintf("takes %s of %s (%s)", permits, o.Limiter, f.ExplainLimiter(o.Limiter))}
	add := func(format string, args ...any) { words = append(words, fmt.Sprintf(format, args...)) }
	switch {
	case o.Shadow:
		add("if there is none, reports it and lets the request go on (shadow)")
	case o.Status != 0:
		add("answers %d if there is none", o.Status)
	case info.Partitioned:
		add("answers 429 if there is none")
	default:
		add("answers 429 if there is none and it is known when there will be, else 503")
	}
	switch {
	case o.Shadow:
	case o.MaxWait < 0:
		add("never waits")
	case o.MaxWait > 0:
		add("waits up to %s", durationtext.Of(o.MaxWait))
	}
	if o.FailOpen {
		add("admits the request if the limiter cannot decide")
	}
	if o.Timeout > 0 {
		add("gives the request %s", durationtext.Of(o.Timeout))
	}
	if fields := o.fields(info); fields != "" {
		add("tells the client %s", fields)
	}
	return words
}

// fields returns the header fields that the client gets; "" if there are none.
func (o Policy) fields(info reload.LimiterInfo) string {
	if o.Headers == nil || *o.Headers == weirhttp.NoHeaders {
		return ""
	}
	quota, window := o.Quota, o.Window
	if quota == 0 {
		quota, window = fileconfig.LimitsOf(info.Options).Quota()
		if quota == 0 || window == 0 && !info.Partitioned {
			return "" // weirhttp does not know it either
		}
	}
	of := fmt.Sprintf("a quota of %d", quota) + fileconfig.When(window > 0, " in "+durationtext.Of(window))
	if *o.Headers == weirhttp.Legacy {
		return of + " by X-RateLimit-Limit, -Remaining and -Reset"
	}
	return of + " by RateLimit-Policy and RateLimit"
}

func (k Key) words() string {
	switch k.kind() {
	case "address":
		return fmt.Sprintf("the address of the client; of an IPv6 address the first %d bits", cmp.Or(k.Address.IPv6Bits, DefaultIPv6Bits))
	case "header":
		return "the header " + http.CanonicalHeaderKey(k.Header)
	case "path_value":
		return "what stands in the path for {" + k.PathValue + "}"
	case "route":
		return "the route"
	case "jwt_claim":
		return k.JWTClaim.words()
	default:
		return strings.Join(k.Composite, " and ") + " together"
	}
}

func (c JWTClaim) words() string {
	by := "verified by " + cmp.Or(c.SecretFile, c.PublicKeyFile, c.JWKSFile)
	if c.Unverified {
		by = "not verified"
	}
	return fmt.Sprintf("the claim %s of the token in %s, which is %s", c.Claim, cmp.Or(c.Header, DefaultTokenHeader), by) +
		fileconfig.When(len(c.RequiredClaims) > 0, " and must have "+strings.Join(c.RequiredClaims, ", "))
}

func (u Upstream) words() string {
	texts := make([]string, len(u.Addresses))
	for i, a := range u.Addresses {
		texts[i] = a.String()
	}
	health := u.HealthWords()
	return strings.Join(texts, ", ") + fileconfig.When(u.KeepHost, "; gets the Host that the client sent") + fileconfig.When(health != "", "; "+health)
}

// HealthWords returns what u, which must have its defaults, does about addresses that fail; "" if it has one address.
func (u Upstream) HealthWords() string {
	if len(u.Addresses) == 1 {
		return ""
	}
	o, ok := u.Breaker()
	if !ok {
		return "treats addresses that fail like others"
	}
	full := circuitbreaker.New(&o).Options() // with the defaults
	var rules []string
	if full.ConsecutiveFailures > 0 {
		rules = append(rules, fmt.Sprintf("%d failures in a row", full.ConsecutiveFailures))
	}
	if full.FailureRatio > 0 {
		rules = append(rules, fmt.Sprintf("failures of %s%% of at least %d requests in %s",
			strconv.FormatFloat(full.FailureRatio*100, 'g', 6, 64), full.MinimumThroughput, durationtext.Of(full.SamplingDuration)))
	}
	return fmt.Sprintf("prefers the other addresses for %s after %s", durationtext.Of(full.BreakDuration), strings.Join(rules, ", or after "))
}

func (r Route) words(g Gateway) string {
	policies := "no policy"
	if names := g.PoliciesOf(r); len(names) > 0 {
		policies = strings.Join(names, ", ")
	}
	return policies + fileconfig.When(r.Pipeline != "", "; through the pipeline "+r.Pipeline) + "; to " + r.Upstream +
		fileconfig.When(r.StripPrefix != "", ", without "+r.StripPrefix)
}

// joinNetworks lists the networks.
func joinNetworks(all []Network) string {
	texts := make([]string, len(all))
	for i, n := range all {
		texts[i] = n.String()
	}
	return strings.Join(texts, ", ")
}
