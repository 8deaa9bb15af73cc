package dashboard

import (
	"bytes"
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
	"github.com/weir-go/weir/internal/durationtext"
	"github.com/weir-go/weir/internal/recovered"
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/limiter/custom"
	"github.com/weir-go/weir/registry"
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
		if i := slices.IndexFunc(c.Results, func(r CheckResult) bool { return r.Unasked }); i >= 0 {
			c.Unasked = c.Results[i].Limiter
		}
		c.Granted = c.Error == "" && c.Unasked == "" && !slices.ContainsFunc(c.Results, rejects)
		if i := slices.IndexFunc(c.Results, rejects); i >= 0 {
			c.By = c.Results[i].Limiter
		}
	} else if f != formatHTML {
		c.Error = "Say what to check: url=/orders, or pipeline=NAME, or limiter=NAME, with key=KEY for a limiter that has one for each."
		status = http.StatusBadRequest
	}
	d.answer(w, f, status, c, c.writeText, func() (string, any) {
		d.listTargets(c)
		p := d.page(pageCheck, query{Sort: sorts[0]})
		p.Data = c
		return "check", p
	})
}

func rejects(r CheckResult) bool { return r.Matched && !r.Granted }

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
		c.Results = append(c.Results, d.checkLimiter(ctx, info, c))
	}
	if c.Limiter == "" {
		for name, p := range d.options.Registry.Pipelines() {
			if name == c.Pipeline {
				found = true
				for source, circuit := range circuitsOf(p.Pipeline) {
					c.Results = append(c.Results, checkCircuit(source, circuit))
				}
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
	case custom.KeyPeeker:
		if c.Key == "" {
			return result.unasked("it has a limit for each key: give the key")
		}
		result.Key = c.Key
		lease, err = l.PeekKey(ctx, c.Key, c.Permits)
	case limiter.Peeker:
		lease, err = l.Peek(ctx, c.Permits)
	default:
		err = errors.ErrUnsupported
	}
	result = result.with(lease, err, info.Options.Limits.QueueLimit > 0)
	if st, ok := info.Limiter.(limiter.StatisticsProvider); ok && result.Granted && result.Remaining == nil && isLocal(info.Limiter) {
		result.Remaining = new(max(st.Statistics().AvailablePermits-int64(c.Permits), 0))
	}
	return result
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
		case r.Unasked:
			decision = "not asked"
		case !r.Matched:
			decision = "does not apply"
		case !r.Granted:
			decision = "rejected"
		}
		if r.RetryAfter > 0 {
			wait = durationtext.Of(roundUp(r.RetryAfter))
		}
		t.row(r.Limiter, r.Policy, r.Key, decision, optional(r.Remaining), wait, r.Reason+prefixed(" Warning: ", r.Warning))
	}
	t.end()
}
