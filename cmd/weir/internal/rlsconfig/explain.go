package rlsconfig

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/weir-go/weir/internal/durationtext"
	"github.com/weir-go/weir/reload"
	"github.com/weir-go/weir/transport/weirrls"
)

// Explain returns what the service does, in words: a line for each rule.
func (c RLS) Explain(f *reload.File) string {
	c = c.WithDefaults()
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	tls := ""
	if c.TLS != nil {
		tls = " with TLS" + when(c.TLS.ClientCA != "", " and certificates of clients")
	}
	line("listens on %s%s%s; admin: %s", c.Listen, tls, when(c.HTTP != "", "; for /json on "+c.HTTP), c.Admin)
	line("stops within %s", durationtext.Of(c.ShutdownDelay+c.ShutdownTimeout))
	for _, name := range slices.Sorted(maps.Keys(c.Stores)) {
		line("store %s: %s", name, c.Stores[name].Words())
	}
	if c.Counters.Store != "" {
		line("counts in the store %s; while it is away: %v", c.Counters.Store, c.Counters.Outage)
	} else {
		line("counts in this process, up to %d keys for each limit", c.Counters.MaxKeys)
	}
	for _, m := range []struct {
		set  bool
		text string
	}{
		{c.ShadowMode, "never rejects: all limits only report"},
		{c.QuotaMode, "rejects only if all limits of a request do"},
		{c.Headers, "tells clients of Envoy ratelimit-limit, -remaining and -reset"},
		{c.Body == ProblemBody, "answers what is rejected with problem details"},
	} {
		if m.set {
			line("%s", m.text)
		}
	}
	for _, d := range c.Domains {
		line("domain %s%s", d.Domain, when(len(d.Descriptors) == 0, ": has no rules, so that every request passes"))
		c.explain(&b, f, d.Descriptors, "  ")
	}
	return b.String()
}

// explain writes a line for each rule.
func (c RLS) explain(b *strings.Builder, f *reload.File, all []Descriptor, indent string) {
	for _, d := range all {
		fmt.Fprintf(b, "%s%s", indent, d.words())
		if d.RateLimit != nil {
			fmt.Fprintf(b, ": %s", strings.Join(c.Words(f, d), "; "))
		}
		b.WriteByte('\n')
		c.explain(b, f, d.Descriptors, indent+"  ")
	}
}

// words says for which entry a rule is.
func (d Descriptor) words() string {
	if d.Value == "" {
		return d.Key
	}
	return d.Key + "=" + d.Value
}

// Words returns what the limit of a rule does, first how much it admits. c must have its defaults.
func (c RLS) Words(f *reload.File, d Descriptor) (words []string) {
	add := func(format string, args ...any) { words = append(words, fmt.Sprintf(format, args...)) }
	l := *d.RateLimit
	each := when(d.Value == "" || strings.Contains(d.Value, "*") && !d.ShareThreshold, ", for each value")
	switch {
	case l.Unlimited:
		add("unlimited")
	case l.Limiter != "":
		add("%s (%s)%s", l.Limiter, f.ExplainLimiter(l.Limiter), when(byKey(f, l.Limiter), each))
	case c.modeOf(l) == Envoy:
		add("%d in each %s since 1970, as envoyproxy/ratelimit counts%s", *l.RequestsPerUnit, *l.Unit, each)
	default:
		add("%d in any %s, in %d steps%s", *l.RequestsPerUnit, *l.Unit, segments, each)
	}
	if l.Name != "" {
		add("called %s", l.Name)
	}
	for _, r := range l.Replaces {
		add("replaces %s", r.Name)
	}
	switch {
	case d.ShadowMode || c.ShadowMode:
		add("only reports (shadow)")
	case d.QuotaMode || c.QuotaMode:
		add("rejects together with all other quotas of the request")
	}
	switch l.OnOverrun {
	case weirrls.OverrunDebt:
		add("takes all if more is asked for than is left (debt)")
	case weirrls.OverrunRest:
		add("takes the rest if more is asked for than is left")
	}
	if l.FailOpen {
		add("admits the request if the limiter cannot decide")
	}
	return words
}

func when(condition bool, text string) string {
	if !condition {
		return ""
	}
	return text
}
