package dashboard

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weir-go/weir/internal/ask"
	"github.com/weir-go/weir/internal/recovered"
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/registry"
	"github.com/weir-go/weir/store"
)

// maxCheckHeaders bounds the headers of a request that is checked.
const maxCheckHeaders = 50

// A checkPage is what the page of the check gets, and its JSON.
type checkPage struct {
	Time    time.Time     `json:"time"`
	Granted bool          `json:"granted"` // every limit was asked, and none would reject it
	By      string        `json:"rejected_by,omitempty"`
	Unasked string        `json:"not_asked,omitempty"` // a limiter that could not be asked, so that the answer is not known
	Results []CheckResult `json:"results"`
	Error   string        `json:"error,omitempty"` // why the answer is not complete

	Asked      bool     `json:"-"`
	HasRequest bool     `json:"-"`
	Method     string   `json:"-"`
	URL        string   `json:"-"`
	Remote     string   `json:"-"`
	Headers    []string `json:"-"`
	Pipeline   string   `json:"-"`
	Limiter    string   `json:"-"`
	Key        string   `json:"-"`
	Permits    int      `json:"-"`
	Pipelines  []string `json:"-"`
	Limiters   []string `json:"-"`
}

// serveCheck answers what would be decided. The parameters are url, method, header (one or several, each "Name: value")
// and remote for a request, or pipeline or limiter, key and permits.
func (d *Dashboard) serveCheck(w http.ResponseWriter, r *http.Request, f format) {
	v := r.URL.Query()
	c := &checkPage{
		Time: time.Now().UTC(), Results: []CheckResult{}, HasRequest: d.options.Check != nil,
		Method: strings.ToUpper(v.Get("method")), URL: v.Get("url"), Remote: strings.TrimSpace(v.Get("remote")),
		Pipeline: v.Get("pipeline"), Limiter: v.Get("limiter"), Key: v.Get("key"), Permits: 1,
	}
	if c.Method == "" {
		c.Method = http.MethodGet
	}
	for _, lines := range v["header"] {
		for line := range strings.Lines(lines) {
			if line = strings.TrimSpace(line); line != "" {
				c.Headers = append(c.Headers, line)
			}
		}
	}
	ctx, cancel := context.WithTimeout(r.Context(), checkTimeout)
	defer cancel()
	c.Asked = c.URL != "" || c.Pipeline != "" || c.Limiter != ""
	status := http.StatusOK
	if c.Asked {
		if err := d.check(ctx, c, v.Get("permits")); err != nil {
			c.Error = err.Error()
			status = http.StatusBadRequest
			if wrong, ok := errors.AsType[*checkError](err); ok {
				status = wrong.status
			}
		}
		for i := range c.Results {
			c.Results[i].Key = d.keyText(c.Results[i].Key)
		}
		c.Granted = c.Error == "" && c.Unasked == "" && !slices.ContainsFunc(c.Results, rejects)
		if i := slices.IndexFunc(c.Results, rejects); i >= 0 {
			c.By = c.Results[i].Limiter
		}
	} else if f != formatHTML {
		c.Error = "Say what to check: url=/orders, or pipeline=NAME, or limiter=NAME, with key=KEY for a limiter that has one for each."
		status = http.StatusBadRequest
	}
	switch f {
	case formatJSON:
		writeJSON(w, status, c)
	case formatText:
		var b bytes.Buffer
		c.writeText(&b)
		write(w, formatText, status, b.Bytes())
	default:
		d.listTargets(c)
		p := d.page(pageCheck, query{Sort: sorts[0]})
		p.Data = c
		d.render(w, status, "check", p)
	}
}

func rejects(r CheckResult) bool { return r.Matched && !r.Granted }

// Unmatched says what it means that a result is not Matched.
func (c *checkPage) Unmatched() string {
	if c.URL != "" {
		return "does not apply"
	}
	return "not asked"
}

// A checkError is an error of a check with its status.
type checkError struct {
	status int
	text   string
}

func (e *checkError) Error() string { return e.text }

// check fills in the results.
func (d *Dashboard) check(ctx context.Context, c *checkPage, permits string) (err error) {
	if permits != "" {
		if c.Permits, err = strconv.Atoi(permits); err != nil || c.Permits < 0 {
			c.Permits = 1
			return fmt.Errorf("permits must be a number of at least 0, got %q", shorten(permits, 30))
		}
	}
	if c.URL != "" {
		return d.checkRequest(ctx, c)
	}
	if len(c.Key) > 4096 {
		return errors.New("the key must have at most 4096 bytes")
	}
	found := false
	for name, info := range d.options.Registry.Limiters() {
		if c.Limiter != "" && name != c.Limiter || c.Limiter == "" && !slices.Contains(info.Pipelines, c.Pipeline) {
			continue
		}
		found = true
		result := d.checkLimiter(ctx, info, c)
		if !result.Matched {
			c.Unasked = cmp.Or(c.Unasked, name)
		}
		c.Results = append(c.Results, result)
	}
	if c.Limiter == "" {
		for name, p := range d.options.Registry.Pipelines() {
			if name == c.Pipeline {
				found = true
				c.Results = append(c.Results, checkCircuits(p.Pipeline)...)
			}
		}
	}
	switch {
	case found:
		return nil
	case c.Limiter != "":
		return &checkError{http.StatusNotFound, fmt.Sprintf("there is no limiter %q", shorten(c.Limiter, 100))}
	default:
		return &checkError{http.StatusNotFound, fmt.Sprintf("there is no pipeline %q", shorten(c.Pipeline, 100))}
	}
}

// checkLimiter asks one limiter.
func (d *Dashboard) checkLimiter(ctx context.Context, info registry.LimiterInfo, c *checkPage) CheckResult {
	result := CheckResult{Limiter: info.Name, Policy: c.Pipeline, Matched: true}
	var lease limiter.Lease
	var err error
	switch l := info.Limiter.(type) {
	case limiter.KeyPeeker:
		if c.Key == "" {
			result.Matched, result.Reason = false, "it has a limit for each key: give the key"
			return result
		}
		result.Key = c.Key
		lease, err = l.PeekKey(ctx, c.Key, c.Permits)
	case limiter.Peeker:
		lease, err = l.Peek(ctx, c.Permits)
	default:
		result.Matched, result.Reason = false, "it cannot be asked without taking a permit"
		return result
	}
	if errors.Is(err, errors.ErrUnsupported) {
		result.Matched, result.Reason = false, "it cannot be asked without taking a permit"
		return result
	}
	if err != nil {
		result.Reason = errorText(err)
		result.Warning = "the limiter returned an error, as a call would get it"
		return result
	}
	result = fillIn(result, info, lease)
	if st, ok := info.Limiter.(limiter.StatisticsProvider); ok && result.Granted && result.Remaining == nil && isLocal(info.Limiter) {
		result.Remaining = new(max(st.Statistics().AvailablePermits-int64(c.Permits), 0))
	}
	return result
}

// fillIn fills in what a lease says.
func fillIn(result CheckResult, info registry.LimiterInfo, lease limiter.Lease) CheckResult {
	result.Granted = lease.Acquired()
	if !result.Granted {
		result.Reason = cmp.Or(lease.Reason(), limiter.ReasonNoPermit)
		if hasQueue(limitsOf(info.Options)) && lease.Reason() != limiter.ReasonClosed {
			result.Reason += "; a call that waits can join the queue"
		}
		if wait, ok := lease.RetryAfter(); ok {
			result.RetryAfter = wait
		}
	}
	if left, ok := lease.Remaining(); ok {
		result.Remaining = new(left)
	}
	if outage, ok := store.OutageKey.From(lease); ok {
		result.Warning = "the store could not be asked, this is what the policy for outages decides: " + errorText(outage)
	}
	return result
}

// hasQueue reports whether a limiter with these limits has a queue.
func hasQueue(limits any) bool {
	switch o := limits.(type) {
	case limiter.TokenBucketOptions:
		return o.QueueLimit > 0
	case limiter.FixedWindowOptions:
		return o.QueueLimit > 0
	case limiter.SlidingWindowOptions:
		return o.QueueLimit > 0
	case limiter.ConcurrencyOptions:
		return o.QueueLimit > 0
	default:
		return false
	}
}

// checkCircuits returns what the circuits of a pipeline would do.
func checkCircuits(p *pipeline.Pipeline) []CheckResult {
	var all []CheckResult
	for source, c := range circuitsOf(p) {
		st := c.Statistics()
		result := CheckResult{Limiter: "circuit " + source.String(), Matched: true, Granted: true, Policy: source.Pipeline}
		switch st.State.String() {
		case "isolated":
			result.Granted, result.Reason = false, "the circuit is isolated"
		case "open":
			result.Granted, result.Reason, result.RetryAfter = st.RetryAfter == 0, "the circuit is open", st.RetryAfter
			if result.Granted {
				result.Reason = "the circuit is open, and the next call tries whether it can be closed"
			}
		case "half_open":
			result.Reason = "the circuit is half open: only a few calls are let through"
		}
		all = append(all, result)
	}
	return all
}

// checkRequest asks [Options.Check].
func (d *Dashboard) checkRequest(ctx context.Context, c *checkPage) error {
	if d.options.Check == nil {
		return &checkError{http.StatusNotImplemented, "this program has no check of requests: give a pipeline or a limiter"}
	}
	r, err := c.request(ctx)
	if err != nil {
		return err
	}
	type answer struct {
		results []CheckResult
		err     error
	}
	var a ask.Asker[answer]
	got, ok := a.Ask("dashboard: Options.Check", func() (a answer) {
		a.err = recovered.Error(func() (err error) {
			a.results, err = d.options.Check(r)
			return err
		})
		return a
	}).Wait(ctx)
	switch {
	case !ok:
		return &checkError{http.StatusGatewayTimeout, "the check has not answered in time"}
	case got.err != nil:
		return &checkError{http.StatusInternalServerError, errorText(got.err)}
	}
	if got.results != nil {
		c.Results = slices.Clone(got.results)
	}
	return nil
}

// request makes the request that the user described.
func (c *checkPage) request(ctx context.Context) (*http.Request, error) {
	u, err := url.Parse(c.URL)
	if err != nil || u.Host == "" && !strings.HasPrefix(c.URL, "/") {
		return nil, fmt.Errorf("url must be a path such as /orders or a URL such as http://api.example.com/orders, got %q", shorten(c.URL, 100))
	}
	r, err := http.NewRequestWithContext(ctx, c.Method, c.URL, http.NoBody)
	if err != nil {
		return nil, fmt.Errorf("method must be that of a request, such as GET, got %q", shorten(c.Method, 30))
	}
	if len(c.Headers) > maxCheckHeaders {
		return nil, fmt.Errorf("header must be given at most %d times, got %d", maxCheckHeaders, len(c.Headers))
	}
	for _, line := range c.Headers {
		name, value, ok := strings.Cut(line, ":")
		if !ok || strings.TrimSpace(name) == "" {
			return nil, fmt.Errorf("header must be of the form Name: value, got %q", shorten(line, 60))
		}
		if name, value = strings.TrimSpace(name), strings.TrimSpace(value); http.CanonicalHeaderKey(name) == "Host" {
			r.Host = value
		} else {
			r.Header.Add(name, value)
		}
	}
	r.RequestURI = u.RequestURI()
	r.RemoteAddr = "127.0.0.1:0"
	if c.Remote != "" {
		host := c.Remote
		if h, _, err := net.SplitHostPort(c.Remote); err == nil {
			host = h
		}
		if net.ParseIP(host) == nil {
			return nil, fmt.Errorf("remote must be an address such as 192.0.2.7, got %q", shorten(c.Remote, 60))
		}
		r.RemoteAddr = net.JoinHostPort(host, "0")
	}
	return r, nil
}

// listTargets lists what the form can choose.
func (d *Dashboard) listTargets(c *checkPage) {
	for name := range d.options.Registry.Pipelines() {
		c.Pipelines = append(c.Pipelines, name)
	}
	for name := range d.options.Registry.Limiters() {
		c.Limiters = append(c.Limiters, name)
	}
}

func (c *checkPage) writeText(b *bytes.Buffer) {
	switch {
	case c.Error != "":
		fmt.Fprintln(b, printable(c.Error))
	case c.Granted:
		fmt.Fprintln(b, "It would be let through.")
	case c.By != "":
		fmt.Fprintf(b, "It would be rejected by %s.\n", printable(c.By))
	default:
		fmt.Fprintf(b, "It is not known: %s was not asked.\n", printable(c.Unasked))
	}
	if len(c.Results) == 0 {
		return
	}
	t := newTable(b, "limits", "LIMIT", "POLICY", "KEY", "DECISION", "LEFT", "RETRY AFTER", "WHY")
	for _, r := range c.Results {
		decision, wait := "granted", ""
		switch {
		case !r.Matched:
			decision = c.Unmatched()
		case !r.Granted:
			decision = "rejected"
		}
		if r.RetryAfter > 0 {
			wait = durationText(roundUp(r.RetryAfter))
		}
		t.row(r.Limiter, r.Policy, r.Key, decision, optional(r.Remaining), wait, r.Reason+prefixed(" Warning: ", r.Warning))
	}
	t.end()
}
