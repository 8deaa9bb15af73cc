package weirhttp

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

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
		t.do(ctx)
	}
}

// trapped is a limiter and its leases, which reach the trap.
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

// Leases, bodies and writers of the program can panic, end the goroutine or wait for the client: no permit is lost, and the next
// request is served. The functions in options are tested in tools/hooktest.
func TestServer_LeasesBodiesAndWritersOfTheProgram(t *testing.T) {
	acts := map[string]func(ctx context.Context){
		"panics": func(context.Context) { panic("a mistake of the program") },
		"exits":  func(context.Context) { runtime.Goexit() },
		"blocks": func(ctx context.Context) { <-ctx.Done() },
	}
	hooks := map[string]bool{ // and whether the limiter must reject for that
		"Limiter.Acquire": false, "Limiter.Statistics": false, "Lease.Release": false, "Lease.Refund": true, "Lease.Adjust": false,
		"Request.Body.Read": false, "Request.Body.Close": false,
		"ResponseWriter.WriteHeader": false, "ResponseWriter.Write": false, "ResponseWriter.Flush": false,
	}
	for hook, rejects := range hooks {
		for act, do := range acts {
			t.Run(hook+" "+act, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					x := &trapped{trap: &trap{hook: hook, do: do}, slots: concurrency(t, 1, 0), asks: rejects}
					h := trappedHandler(x)
					ctx, cancel := context.WithTimeout(t.Context(), time.Second)
					defer cancel()
					x.ctx = ctx
					var ended sync.WaitGroup
					ended.Go(func() {
						defer func() { _ = recover() }()
						r := httptest.NewRequest(http.MethodPost, "/", nil).WithContext(ctx)
						r.Body = trappedBody{strings.NewReader("x"), x.trap}
						h.ServeHTTP(trappedWriter{httptest.NewRecorder(), x.trap}, r)
					})
					ended.Wait()
					assert.Empty(t, x.hook, "the hook was called")
					assert.EqualValues(t, 1, x.slots.Statistics().AvailablePermits, "the permit is back")
					x.asks = false
					assert.Equal(t, http.StatusOK, get(h).Code, "the next one is served")
				})
			})
		}
	}
}

// trappedHandler returns a route with a limiter that is x.
func trappedHandler(x *trapped) http.Handler {
	key := func(*http.Request) string { return "k" }
	l := weir.Must(NewLimits(&LimitsOptions{
		Headers: Draft11, Global: Policy{Limit: Of(x.slots), Timeout: time.Hour},
		Policies: map[string]Policy{
			"first": {Limit: ByKey(&trapped{trap: x.trap}, key), Quota: 10},
			"p":     {Limit: ByKey(x, key), Quota: 10, Metered: true},
		},
	}))
	p := weir.Must(pipeline.New("p", timeout.New(time.Hour, nil)))
	return l.Handler(Through(p, nil)(handler(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.ReadAll(r.Body)
		_ = r.Body.Close()
		_, _ = Charge(r.Context(), 1)
		w.WriteHeader(http.StatusOK)
		_, _ = io.WriteString(w, "all of it")
		_ = http.NewResponseController(w).Flush()
	})), "first", "p")
}
