package weirhttp

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/limiter/custom"
	"github.com/weir-go/weir/pipeline"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// always gives every request the same answer, and counts.
type always struct {
	grant      bool
	retryAfter time.Duration
	err        error

	mu                      sync.Mutex
	asked, released, undone int
	costs                   []int
}

func (a *always) TryAcquire(_ context.Context, n int) (limiter.Lease, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.asked++
	a.costs = append(a.costs, n)
	switch {
	case a.err != nil:
		return limiter.Lease{}, a.err
	case !a.grant:
		return custom.Rejected(a.retryAfter, ""), nil
	}
	count := func(n *int) func() {
		return func() {
			a.mu.Lock()
			defer a.mu.Unlock()
			*n++
		}
	}
	return custom.GrantedRefundable(n, count(&a.released), count(&a.undone)), nil
}

func (a *always) Acquire(ctx context.Context, n int) (limiter.Lease, error) {
	if ctx.Err() != nil {
		return limiter.Lease{}, ctx.Err()
	}
	return a.TryAcquire(ctx, n)
}

func (a *always) check(t *testing.T, asked, released, undone int) {
	t.Helper()
	a.mu.Lock()
	defer a.mu.Unlock()
	require.Equal(t, [3]int{asked, released, undone}, [3]int{a.asked, a.released, a.undone}, "asked, released, undone")
}

var errStore = errors.New("the store is down")

func yes() *always { return &always{grant: true} }
func no() *always  { return &always{retryAfter: 1500 * time.Millisecond} }

// answers returns a rejection handler that answers with a status.
func answers(status int) Body {
	return func(w http.ResponseWriter, _ *http.Request, _ Rejection) { w.WriteHeader(status) }
}

func get(h http.Handler) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
	return w
}

func concurrency(t testing.TB, permits, queue int) *limiter.Concurrency {
	l := weir.Must(limiter.NewConcurrency(limiter.ConcurrencyOptions{PermitLimit: permits, QueueLimit: queue}))
	t.Cleanup(func() { _ = l.Close() })
	return l
}

func bucket(t testing.TB, tokens int) *limiter.TokenBucket {
	l := weir.Must(limiter.NewTokenBucket(limiter.TokenBucketOptions{
		TokenLimit: tokens, TokensPerPeriod: tokens, ReplenishmentPeriod: time.Hour,
	}))
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// recording records events and measurements.
type recording struct {
	mu           sync.Mutex
	events       []pipeline.Event
	measurements []pipeline.Event
}

func (l *recording) Hooks() pipeline.Hooks {
	return pipeline.Hooks{
		OnEvent: l.OnEvent,
		OnMeasurement: func(ctx context.Context, e pipeline.Event) func(context.Context, pipeline.Event) {
			l.OnMeasurement(ctx, e)
			return l.OnMeasurement
		},
	}
}

func (l *recording) OnEvent(_ context.Context, e pipeline.Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.events = append(l.events, e)
}

func (l *recording) OnMeasurement(_ context.Context, e pipeline.Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.measurements = append(l.measurements, e)
}

// names returns the names of events with the names of their policies.
func names(events []pipeline.Event) []string {
	var all []string
	for _, e := range events {
		all = append(all, e.Name+" "+e.Source.Strategy)
	}
	return all
}
