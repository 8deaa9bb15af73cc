package rlsconfig

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	commonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/weir-go/weir/internal/durationtext"
	"github.com/weir-go/weir/reload"
	"github.com/weir-go/weir/transport/weirrls"

	"github.com/weir-go/weir/cmd/weir/internal/fileconfig"
)

// Explain returns what the service does, in words: a line for each rule.
func (c RLS) Explain(f *reload.File) string {
	c = c.WithDefaults()
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	tls := ""
	if c.TLS != nil {
		tls = " with TLS" + fileconfig.When(c.TLS.ClientCA != "", " and certificates of clients")
	}
	line("listens on %s%s%s; admin: %s", c.Listen, tls, fileconfig.When(c.HTTP != "", "; for /json on "+c.HTTP), c.Admin)
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
		line("domain %s%s", d.Domain, fileconfig.When(len(d.Descriptors) == 0, ": has no rules, so that every request passes"))
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
	each := fileconfig.When(d.Value == "" || strings.Contains(d.Value, "*") && !d.ShareThreshold, ", for each value")
	switch {
	case l.Unlimited:
		add("unlimited")
	case l.Limiter != "":
		add("%s (%s)%s", l.Limiter, f.ExplainLimiter(l.Limiter), fileconfig.When(byKey(f, l.Limiter), each))
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

// Grammar says how a descriptor is written for [ParseRequest].
const Grammar = `DOMAIN: KEY=VALUE[, KEY=VALUE]...`

// ParseRequest returns the request with one descriptor that a text such as "edge: user=alice, path=/reports" stands for.
// Values have no commas; spaces around them are left out.
func ParseRequest(text string) (*ratelimitv3.RateLimitRequest, error) {
	domain, rest, ok := strings.Cut(text, ":")
	if domain = strings.TrimSpace(domain); !ok || domain == "" {
		return nil, errors.New("must begin with the domain and a colon")
	}
	d := &commonv3.RateLimitDescriptor{}
	for part := range strings.SplitSeq(rest, ",") {
		key, value, _ := strings.Cut(part, "=")
		if key = strings.TrimSpace(key); key == "" {
			return nil, fmt.Errorf("each entry must be KEY=VALUE, got %q", strings.TrimSpace(part))
		}
		d.Entries = append(d.Entries, &commonv3.RateLimitDescriptor_Entry{Key: key, Value: strings.TrimSpace(value)})
	}
	return &ratelimitv3.RateLimitRequest{Domain: domain, Descriptors: []*commonv3.RateLimitDescriptor{d}}, nil
}

// Find writes which rule of the file is for the descriptor of a request, and what its limit does.
func Find(w io.Writer, f *reload.File, r *ratelimitv3.RateLimitRequest) error {
	c, ok := reload.SectionOf[RLS](f, Field)
	if !ok {
		return fmt.Errorf("the file has no %s", Field)
	}
	c = c.WithDefaults()
	path, d, err := c.find(r)
	if err != nil {
		return err
	}
	entries := make([]string, len(r.Descriptors[0].Entries))
	for i, e := range r.Descriptors[0].Entries {
		entries[i] = e.Key + "=" + e.Value
	}
	text := fmt.Sprintf("%s: %s\n  no rule is for it: it passes\n", r.Domain, strings.Join(entries, ", "))
	if path != nil {
		text = fmt.Sprintf("%s: %s\n  rule: %s\n  limit: %s\n", r.Domain, strings.Join(entries, ", "), strings.Join(path, " / "), strings.Join(c.Words(f, d), "; "))
	}
	_, err = io.WriteString(w, text)
	return err
}

// find returns the rule for the descriptor of the request. The service itself finds it: all limits are replaced by ones
// that bear a number and reject nothing.
func (c RLS) find(r *ratelimitv3.RateLimitRequest) (path []string, d Descriptor, err error) {
	type rule struct {
		path []string
		d    Descriptor
	}
	byName := make(map[string]rule)
	rules, err := c.rules(func(path []string, _ bool, d Descriptor) (*weirrls.Limit, error) {
		name := fmt.Sprint(len(byName))
		byName[name] = rule{path, d}
		return &weirrls.Limit{Name: name, Window: &weirrls.Window{RequestsPerUnit: 1, Unit: weirrls.Year}}, nil
	})
	if err != nil {
		return nil, d, err
	}
	service, err := weirrls.NewService(rules, nil)
	if err != nil {
		return nil, d, err
	}
	answer, err := service.ShouldRateLimit(context.Background(), r)
	if err != nil {
		return nil, d, err
	}
	found := byName[answer.GetStatuses()[0].GetCurrentLimit().GetName()]
	return found.path, found.d, nil
}
