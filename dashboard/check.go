package dashboard

import (
	"cmp"
	"context"
	"errors"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weir-go/weir/internal/recovered"
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/limiter/custom"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/registry"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/strategies/circuitbreaker"
	"github.com/weir-go/weir/strategies/ratelimit"
)

// A CheckResult says what one limit would decide about a request now. It took no permit and counted nothing.
type CheckResult struct {
	Policy  string `json:"policy,omitempty"` // the name of the policy, or what else the limit is part of
	Limiter string `json:"limiter"`          // the name of the limiter
	// Key is the key of the request in a partitioned limiter. Without [Options.ShowKeys] the answer has its hash.
	Key string `json:"key,omitempty"`
	// Matched reports whether the limit applies to the request. If false, Reason says why not, and the fields below Reason
	// are zero.
	Matched bool `json:"matched"`
	// Unasked reports whether the limit was not asked, although it may apply; Matched is then false. What would happen to
	// the request is then not known.
	Unasked bool `json:"not_asked,omitempty"`
	// Reason is why the limit does not apply or, if it applies, why it would reject.
	Reason     string        `json:"reason,omitempty"`
	Granted    bool          `json:"granted"`               // the request would be let through now
	RetryAfter time.Duration `json:"retry_after,omitempty"` // in JSON in ns; 0: not rejected, or not known
	Remaining  *int64        `json:"remaining,omitempty"`   // the permits that would be left; nil: not known
	// Warning says what the answer cannot be relied on for, such as a store that was not available.
	Warning string `json:"warning,omitempty"`
}

// CheckPipeline returns what the limiters and circuits of a pipeline would decide about an execution with that context
// now, the outermost first, for [Options.Check]. The pipelines that p embeds are checked in their places, each once. Policy
// is the name of the pipeline, and Limiter the source of the strategy, such as "orders/RateLimiter" or
// "circuit orders/CircuitBreaker".
//
// A strategy is asked if it is a circuit breaker or has a method Peek, as those of the packages ratelimit and adaptive have.
// Nothing is taken or counted. A limiter in a store is asked there. CheckPipeline does not know what the other strategies
// make of a rejection: a fallback can replace it, and a retry can try again.
func CheckPipeline(ctx context.Context, p *pipeline.Pipeline) []CheckResult {
	return checkStrategies(ctx, p, map[*pipeline.Pipeline]bool{})
}

// A peeker is a strategy that can say what its limiter would answer.
type peeker interface {
	Peek(ctx context.Context) (limiter.Lease, error)
}

func checkStrategies(ctx context.Context, p *pipeline.Pipeline, seen map[*pipeline.Pipeline]bool) (all []CheckResult) {
	if seen[p] {
		return nil
	}
	seen[p] = true
	for source, s := range p.Strategies() {
		switch s := s.(type) {
		case interface{ Pipeline() *pipeline.Pipeline }:
			all = append(all, checkStrategies(ctx, s.Pipeline(), seen)...)
		case *circuitbreaker.Strategy:
			all = append(all, checkCircuit(source, s))
		case peeker:
			all = append(all, checkStrategy(ctx, source, s))
		}
	}
	return all
}

// checkStrategy asks the limiter of a strategy.
func checkStrategy(ctx context.Context, source pipeline.Source, s peeker) CheckResult {
	result := CheckResult{Limiter: source.String(), Policy: source.Pipeline, Matched: true}
	lease, err := s.Peek(ctx)
	limiting, _ := s.(*ratelimit.Strategy)
	if limiting == nil || err == nil && lease.Acquired() {
		return result.with(lease, err, false)
	}
	queue := false
	if err == nil {
		options, _ := limiting.Describe()
		limits, ok := options.(ratelimit.Description).Limits.(limiter.Options)
		queue = ok && limits.Limits().QueueLimit > 0
	}
	result = result.with(lease, err, queue)
	if limiting.Options().Shadow {
		return result.shadowed()
	}
	return result
}

// shadowed returns the result of a strategy in shadow mode.
func (r CheckResult) shadowed() CheckResult {
	r.Matched, r.Unasked, r.Granted, r.RetryAfter = true, false, true, 0
	r.Warning = "the strategy is in shadow mode: it only reports, and lets the execution go on"
	return r
}

// onlyReports reports whether the strategies of p that ask the limiter are in shadow mode.
func onlyReports(p *pipeline.Pipeline, info registry.LimiterInfo) (shadow bool) {
	for _, s := range p.Strategies() {
		s, ok := s.(*ratelimit.Strategy)
		if !ok || s.Limiter() != info.Limiter && (s.Limiter() != nil || !info.Partitioned) {
			continue
		}
		if shadow = s.Options().Shadow; !shadow {
			return false
		}
	}
	return shadow
}

// checkCircuit returns what a circuit would do.
func checkCircuit(source pipeline.Source, c *circuitbreaker.Strategy) CheckResult {
	st := c.Statistics()
	result := CheckResult{Limiter: "circuit " + source.String(), Matched: true, Granted: true, Policy: source.Pipeline}
	switch st.State {
	case circuitbreaker.Isolated:
		result.Granted, result.Reason = false, "the circuit is isolated"
	case circuitbreaker.Open:
		result.Granted, result.Reason, result.RetryAfter = false, "the circuit is open", st.RetryAfter
	case circuitbreaker.HalfOpen:
		result.Reason = "the circuit is half open: the next call tries whether it can be closed"
		if st.RetryAfter > 0 {
			result.Granted, result.Reason, result.RetryAfter = false, "the circuit is half open, and is tried by other calls", st.RetryAfter
		}
	}
	return result
}

// with returns the result with what Peek has returned. queue reports whether the limiter is known to have one.
func (r CheckResult) with(lease limiter.Lease, err error, queue bool) CheckResult {
	switch {
	case errors.Is(err, errors.ErrUnsupported):
		return r.unasked("it cannot be asked without taking a permit")
	case err != nil:
		r.Reason = errorText(err)
		r.Warning = "the limiter returned an error, as a call would get it"
		return r
	}
	r.Granted = lease.Acquired()
	if !r.Granted {
		r.Reason = cmp.Or(lease.Reason(), limiter.ReasonNoPermit)
		if queue && lease.Reason() != limiter.ReasonClosed {
			r.Reason += "; a call that waits can join the queue"
		}
		r.RetryAfter, _ = lease.RetryAfter()
	}
	if left, ok := lease.Remaining(); ok {
		r.Remaining = new(left)
	}
	if outage, ok := store.OutageKey.From(lease); ok {
		r.Warning = "the store could not be asked, this is what the policy for outages decides: " + errorText(outage)
	}
	return r
}

// unasked returns the result of a limit that was not asked.
func (r CheckResult) unasked(reason string) CheckResult {
	r.Matched, r.Unasked, r.Reason = false, true, reason
	return r
}

// A checkPage is the page of the check.
type checkPage struct {
	Time    time.Time     `json:"time"`
	Granted bool          `json:"granted"` // every limit was asked, and none would reject it
	By      string        `json:"rejected_by,omitempty"`
	Unasked string        `json:"not_asked,omitempty"` // a limiter that could not be asked, so that the answer is not known
	Results []CheckResult `json:"results"`
	Error   string        `json:"error,omitempty"` // why the answer is not complete
	Form    checkForm     `json:"-"`
}

// A checkForm is what the user asks.
type checkForm struct {
	Method, URL, Remote    string
	Headers                []string
	Pipeline, Limiter, Key string
	Permits                int
	HasRequest             bool     // there is a check of requests
	Pipelines, Limiters    []string // what can be chosen
}

// Asked reports whether the form is filled in.
func (c *checkForm) Asked() bool { return c.URL != "" || c.Pipeline != "" || c.Limiter != "" }

// serveCheck answers what would be decided. The parameters are url, method, header (one or several, each "Name: value")
// and remote for a request, or pipeline or limiter, key and permits.
func (d *Dashboard) serveCheck(w http.ResponseWriter, r *http.Request, f format) {
	ctx, cancel := context.WithTimeout(r.Context(), checkTimeout)
	defer cancel()
	v := r.URL.Query()
	c := &checkPage{Time: time.Now().UTC(), Results: []CheckResult{}, Form: checkForm{
		Method: cmp.Or(strings.ToUpper(v.Get("method")), http.MethodGet), URL: v.Get("url"), Remote: strings.TrimSpace(v.Get("remote")),
		Headers:  strings.FieldsFunc(strings.Join(v["header"], "\n"), func(r rune) bool { return r == '\n' || r == '\r' }),
		Pipeline: v.Get("pipeline"), Limiter: v.Get("limiter"), Key: v.Get("key"), Permits: 1, HasRequest: d.options.Check != nil,
	}}
	var err error
	switch {
	case c.Form.Asked():
		c.Results, err = d.check(ctx, &c.Form, v.Get("permits"))
		c.conclude(err, d.options.keyText)
	case f != formatHTML:
		err = badRequest("Say what to check: url=/orders, or pipeline=NAME, or limiter=NAME, with key=KEY for a limiter that has one for each.")
		c.Error = err.Error()
	}
	status := http.StatusOK
	if err != nil {
		status = statusOf(err)
	}
	for name := range d.options.Registry.Pipelines() {
		c.Form.Pipelines = append(c.Form.Pipelines, name)
	}
	for name := range d.options.Registry.Limiters() {
		c.Form.Limiters = append(c.Form.Limiters, name)
	}
	d.answer(w, f, status, "check", d.page(pageCheck), c)
}

// conclude fills in what the results mean together. err is why they are not complete.
func (c *checkPage) conclude(err error, keyText func(string) string) {
	if err != nil {
		c.Error = err.Error()
	}
	if c.Results == nil {
		c.Results = []CheckResult{} // for JSON
	}
	for i := range slices.Backward(c.Results) { // the first ones count
		r := &c.Results[i]
		r.Key = keyText(r.Key)
		switch {
		case r.Unasked:
			c.Unasked = r.Limiter
		case r.Matched && !r.Granted:
			c.By = r.Limiter
		}
	}
	c.Granted = err == nil && c.Unasked == "" && c.By == ""
}

func badRequest(format string, args ...any) error {
	return refuse(http.StatusBadRequest, format, args...)
}

// check asks the limits that the form is about.
func (d *Dashboard) check(ctx context.Context, f *checkForm, permits string) (results []CheckResult, err error) {
	if permits != "" {
		if f.Permits, err = strconv.Atoi(permits); err != nil || f.Permits < 0 {
			f.Permits = 1
			return nil, badRequest("permits must be a number of at least 0, got %q", shorten(permits, 30))
		}
	}
	if f.URL != "" {
		return d.checkRequest(ctx, f)
	}
	if len(f.Key) > 4096 {
		return nil, badRequest("the key must have at most 4096 bytes")
	}
	if f.Limiter != "" {
		for name, info := range d.options.Registry.Limiters() {
			if name == f.Limiter {
				return []CheckResult{checkLimiter(ctx, info, f)}, nil
			}
		}
		return nil, refuse(http.StatusNotFound, "there is no limiter %q", shorten(f.Limiter, 100))
	}
	for name, p := range d.options.Registry.Pipelines() {
		if name == f.Pipeline {
			return d.checkByName(ctx, p.Pipeline, f), nil
		}
	}
	return nil, refuse(http.StatusNotFound, "there is no pipeline %q", shorten(f.Pipeline, 100))
}

// checkByName asks the limiters and circuits of a pipeline.
func (d *Dashboard) checkByName(ctx context.Context, p *pipeline.Pipeline, f *checkForm) (results []CheckResult) {
	for _, info := range d.options.Registry.Limiters() {
		if !slices.Contains(info.Pipelines, f.Pipeline) {
			continue
		}
		result := checkLimiter(ctx, info, f)
		if !result.Granted && onlyReports(p, info) {
			result = result.shadowed()
		}
		results = append(results, result)
	}
	for source, circuit := range circuitsOf(p) {
		results = append(results, checkCircuit(source, circuit))
	}
	return results
}

// checkLimiter asks one limiter.
func checkLimiter(ctx context.Context, info registry.LimiterInfo, f *checkForm) CheckResult {
	result := CheckResult{Limiter: info.Name, Policy: f.Pipeline, Matched: true}
	lease, err := limiter.Lease{}, errors.ErrUnsupported
	switch l := info.Limiter.(type) {
	case custom.KeyPeeker:
		if f.Key == "" {
			return result.unasked("it has a limit for each key: give the key")
		}
		result.Key = f.Key
		lease, err = l.PeekKey(ctx, f.Key, f.Permits)
	case limiter.Peeker:
		lease, err = l.Peek(ctx, f.Permits)
	}
	result = result.with(lease, err, info.Options.Limits.QueueLimit > 0)
	if st, ok := localStatistics(info); ok && result.Granted && result.Remaining == nil && !info.Shared {
		result.Remaining = new(max(st.AvailablePermits-int64(f.Permits), 0))
	}
	return result
}

// checkRequest asks [Options.Check].
func (d *Dashboard) checkRequest(ctx context.Context, f *checkForm) ([]CheckResult, error) {
	if d.options.Check == nil {
		return nil, refuse(http.StatusNotImplemented, "this program has no check of requests: give a pipeline or a limiter")
	}
	r, err := f.request(ctx)
	if err != nil {
		return nil, err
	}
	var results []CheckResult
	err = recovered.Error(func() (err error) {
		results, err = d.options.Check(r)
		return err
	})
	if err != nil {
		return nil, refuse(http.StatusInternalServerError, "%s", errorText(err))
	}
	return slices.Clone(results), nil
}

// request makes the request that the user described.
func (f *checkForm) request(ctx context.Context) (*http.Request, error) {
	u, err := url.Parse(f.URL)
	if err != nil || u.Host == "" && !strings.HasPrefix(f.URL, "/") {
		return nil, badRequest("url must be a path such as /orders or a URL such as http://api.example.com/orders, got %q", shorten(f.URL, 100))
	}
	r, err := http.NewRequestWithContext(ctx, f.Method, f.URL, http.NoBody)
	if err != nil {
		return nil, badRequest("method must be that of a request, such as GET, got %q", shorten(f.Method, 30))
	}
	for _, line := range f.Headers {
		name, value, ok := strings.Cut(line, ":")
		if !ok || strings.TrimSpace(name) == "" {
			return nil, badRequest("header must be of the form Name: value, got %q", shorten(line, 60))
		}
		if name, value = strings.TrimSpace(name), strings.TrimSpace(value); http.CanonicalHeaderKey(name) == "Host" {
			r.Host = value
		} else {
			r.Header.Add(name, value)
		}
	}
	r.RequestURI = u.RequestURI()
	r.RemoteAddr = "127.0.0.1:0"
	if f.Remote != "" {
		host := f.Remote
		if h, _, err := net.SplitHostPort(f.Remote); err == nil {
			host = h
		}
		if net.ParseIP(host) == nil {
			return nil, badRequest("remote must be an address such as 192.0.2.7, got %q", shorten(f.Remote, 60))
		}
		r.RemoteAddr = net.JoinHostPort(host, "0")
	}
	return r, nil
}
