package weirhttp

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"reflect"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/limiter/custom"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/strategies/timeout"
)

// A trap does something in one hook, once.
type trap struct {
	hook string
	do   func(ctx context.Context)

	mu  sync.Mutex
	ctx context.Context // of the request, for hooks that get none
	hit chan struct{}
}

func (t *trap) reach(hook string, ctx context.Context) {
	t.mu.Lock()
	if ctx != nil {
		t.ctx = ctx
	}
	ctx, mine := t.ctx, hook == t.hook
	if mine {
		t.hook = ""
	}
	t.mu.Unlock()
	if mine {
		close(t.hit)
		t.do(ctx)
	}
}

// trapped is a limiter, its leases and a listener, which all reach the trap.
type trapped struct {
	*trap
	slots *limiter.Concurrency
	asks  bool // rejects
}

func (l *trapped) Acquire(ctx context.Context, _ string, n int) (limiter.Lease, error) {
	l.reach("Limiter.Acquire", ctx)
	return l.grant(n)
}

func (l *trapped) TryAcquire(ctx context.Context, _ string, n int) (limiter.Lease, error) {
	l.reach("Limiter.TryAcquire", ctx)
	return l.grant(n)
}

func (l *trapped) grant(n int) (limiter.Lease, error) {
	if l.asks {
		return custom.Rejected(0, ""), nil
	}
	return custom.GrantedBy(l, n, 0), nil
}

func (l *trapped) Release(int, int64) { l.reach("Lease.Release", nil) }
func (l *trapped) Refund(int, int64)  { l.reach("Lease.Refund", nil) }

func (l *trapped) Adjust(int, int64, int) (int64, bool) {
	l.reach("Lease.Adjust", nil)
	return 0, true
}

func (l *trapped) Statistics(string) (limiter.Statistics, error) {
	l.reach("Limiter.Statistics", nil)
	return limiter.Statistics{}, nil
}

func (l *trapped) Hooks() pipeline.Hooks {
	return pipeline.Hooks{
		OnEvent: l.OnEvent,
		Enabled: l.Enabled,
		OnMeasurement: func(ctx context.Context, e pipeline.Event) func(context.Context, pipeline.Event) {
			l.OnMeasurement(ctx, e)
			return l.OnMeasurement
		},
	}
}

func (l *trapped) Enabled(ctx context.Context) bool {
	l.reach("Listener.Enabled", ctx)
	return true
}

func (l *trapped) OnEvent(ctx context.Context, _ pipeline.Event) {
	l.reach("LimitsOptions.Listener", ctx)
}

func (l *trapped) OnMeasurement(ctx context.Context, e pipeline.Event) {
	l.reach("Listener.OnMeasurement "+e.Name, ctx)
}

// trappedBody and trappedWriter are what middleware of the program can use.
type trappedBody struct {
	io.Reader
	*trap
}

func (b trappedBody) Read(p []byte) (int, error) {
	b.reach("Request.Body.Read", nil)
	return b.Reader.Read(p)
}

func (b trappedBody) Close() error {
	b.reach("Request.Body.Close", nil)
	return nil
}

type trappedWriter struct {
	http.ResponseWriter
	*trap
}

func (w trappedWriter) WriteHeader(status int) {
	w.reach("ResponseWriter.WriteHeader", nil)
	w.ResponseWriter.WriteHeader(status)
}

func (w trappedWriter) Write(p []byte) (int, error) {
	w.reach("ResponseWriter.Write", nil)
	return w.ResponseWriter.Write(p)
}

func (w trappedWriter) Flush() { w.reach("ResponseWriter.Flush", nil) }

// trappedHandler returns a route with every option that is a function.
func trappedHandler(t *testing.T, x *trapped) http.Handler {
	var keyed limiter.Partitioned[string] = x
	body := func(hook string) Body {
		return func(w http.ResponseWriter, r *http.Request, rejection Rejection) {
			x.reach(hook, r.Context())
			if strings.Contains(hook, "Body") {
				w.WriteHeader(rejection.Status)
			}
		}
	}
	l := weir.Must(NewLimits(&LimitsOptions{
		Listener: x, Headers: Draft11,
		Exempt:     func(r *http.Request) bool { x.reach("LimitsOptions.Exempt", r.Context()); return false },
		OnRejected: body("LimitsOptions.OnRejected"),
		Body:       body("LimitsOptions.Body"),
		Global:     Policy{Limit: Of(x.slots), Timeout: time.Hour},
		Policies: map[string]Policy{
			"first": {Limit: ByKey(&trapped{trap: x.trap}, func(*http.Request) string { return "" }), Quota: 10},
			"p": {
				Limit: ByKey(keyed, func(r *http.Request) string { x.reach("ByKey", r.Context()); return "k" }), Quota: 10, Metered: true,
				Cost: func(r *http.Request) int { x.reach("Policy.Cost", r.Context()); return 1 },
			},
			"own": {
				Limit: ByKey(keyed, func(*http.Request) string { return "" }), Quota: 1,
				OnRejected: body("Policy.OnRejected"),
			},
		},
	}))
	p := weir.Must(pipeline.New("p", timeout.New(time.Hour, nil)))
	closed := weir.Must(pipeline.New("closed", timeout.New(time.Hour, nil)))
	require.NoError(t, closed.Close())
	o := &ThroughOptions{
		Failed:     func(int) bool { x.reach("ThroughOptions.Failed", nil); return false },
		Status:     func(error) int { x.reach("ThroughOptions.Status", nil); return 0 },
		OnRejected: body("ThroughOptions.OnRejected"),
		Body:       body("ThroughOptions.Body"),
	}
	h := handler(func(w http.ResponseWriter, r *http.Request) {
		x.reach("Handler", r.Context())
		_, _ = io.ReadAll(r.Body)
		_ = r.Body.Close()
		_, _ = Charge(r.Context(), 1)
		w.WriteHeader(http.StatusOK)
		_, _ = io.WriteString(w, "all of it")
		_ = http.NewResponseController(w).Flush()
	})
	mux := http.NewServeMux()
	mux.Handle("/", l.Handler(Through(p, o)(h), "first", "p"))
	mux.Handle("/own", l.Handler(h, "first", "own"))
	mux.Handle("/closed", l.Handler(Through(closed, o)(h)))
	return mux
}

// hooks are all functions of the program that the middleware calls, with the path of the request that reaches them, and
// whether the limiter must reject for that.
var hooks = map[string]struct {
	path    string
	rejects bool
}{
	"LimitsOptions.Exempt": {}, "LimitsOptions.Listener": {rejects: true},
	"LimitsOptions.OnRejected": {rejects: true}, "LimitsOptions.Body": {rejects: true},
	"ByKey": {}, "Policy.Cost": {}, "Policy.OnRejected": {path: "own", rejects: true},
	"ThroughOptions.Failed": {}, "ThroughOptions.Status": {path: "closed"},
	"ThroughOptions.OnRejected": {path: "closed"}, "ThroughOptions.Body": {path: "closed"},
	"Listener.Enabled":                          {},
	"Listener.OnMeasurement RateLimiterRequest": {},
	"Listener.OnMeasurement RateLimiterLease":   {},
	"Limiter.Acquire":                           {},
	"Limiter.Statistics":                        {},
	"Lease.Release":                             {},
	"Lease.Refund":                              {rejects: true},
	"Lease.Adjust":                              {},
	"Handler":                                   {},
	"Request.Body.Read":                         {},
	"Request.Body.Close":                        {},
	"ResponseWriter.WriteHeader":                {},
	"ResponseWriter.Write":                      {},
	"ResponseWriter.Flush":                      {},
}

func TestServer_HooksMayDoAnything(t *testing.T) {
	acts := map[string]func(ctx context.Context){
		"panics":  func(context.Context) { panic("a mistake of the program") },
		"aborts":  func(context.Context) { panic(http.ErrAbortHandler) },
		"exits":   func(context.Context) { runtime.Goexit() },
		"blocks":  func(ctx context.Context) { <-ctx.Done() },
		"returns": func(context.Context) {},
		"calls back": func(ctx context.Context) {
			LeaseFrom(ctx)
			for range Leases(ctx) {
				RequestFrom(ctx)
			}
			_, _ = Charge(ctx, 1, "p")
			_, _ = Charge(ctx, -1, "p", "first")
		},
	}
	for hook, where := range hooks {
		for act, do := range acts {
			if hook == "Lease.Adjust" && act == "calls back" {
				continue // Charge forbids it
			}
			t.Run(hook+" "+act, func(t *testing.T) {
				x := &trapped{trap: &trap{hook: hook, do: do, hit: make(chan struct{})}, slots: concurrency(t, 1, 0), asks: where.rejects}
				h := trappedHandler(t, x)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				x.ctx = ctx
				ended := make(chan struct{})
				w := httptest.NewRecorder()
				go func() {
					defer close(ended)
					defer func() { _ = recover() }()
					r := httptest.NewRequest(http.MethodPost, "/"+where.path, nil).WithContext(ctx)
					r.Body = trappedBody{strings.NewReader("x"), x.trap}
					h.ServeHTTP(trappedWriter{w, x.trap}, r)
				}()
				select {
				case <-x.hit:
				case <-ended:
				}
				select {
				case <-x.hit:
				default:
					t.Error("the hook is not called")
				}
				if act == "blocks" {
					cancel()
				}
				<-ended
				assert.EqualValues(t, 1, x.slots.Statistics().AvailablePermits, "the permit is back")
				if act == "calls back" && !where.rejects && where.path == "" {
					assert.Equal(t, "all of it", w.Body.String())
				}
				x.asks = false
				assert.Equal(t, http.StatusOK, get(h).Code, "the next one is served")
			})
		}
	}
}

// A new field with a function of the program needs a row above.
func TestServer_HooksAreAllTested(t *testing.T) {
	for _, o := range []any{LimitsOptions{}, Policy{}, ThroughOptions{}} {
		of := reflect.TypeOf(o)
		for _, f := range reflect.VisibleFields(of) {
			if f.Type.Kind() != reflect.Func && f.Type.Kind() != reflect.Interface {
				continue
			}
			name := of.Name() + "." + f.Name
			_, ok := hooks[name]
			assert.True(t, ok, name)
		}
	}
}

func TestPolicy_KeyRunsOnce(t *testing.T) {
	ran := 0
	l := weir.Must(NewLimits(&LimitsOptions{Headers: Draft11, Policies: map[string]Policy{
		"p": {Limit: ByKey(keyedBuckets(t, 2), func(*http.Request) string { ran++; return "k" }), Quota: 2},
	}}))
	h := l.Handler(served, "p")
	for i := range 3 {
		w := get(h)
		assert.NotEmpty(t, w.Header().Get("Ratelimit"))
		assert.Equal(t, i+1, ran)
	}
}
