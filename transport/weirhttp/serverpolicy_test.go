package weirhttp_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/storetest"
	"github.com/weir-go/weir/transport/weirhttp"
)

// heard records the events of a test.
type heard struct{ events []pipeline.Event }

func TestPolicy_FailOpenWithAStoreThatIsAway(t *testing.T) {
	limits := limiter.FixedWindowOptions{PermitLimit: 1, Window: time.Hour}
	for _, c := range []struct {
		name     string
		failOpen bool
		outage   store.OutagePolicy
		want     int
		events   []string
	}{
		{"fail open, store closed", true, store.FailClosed, 200, []string{weirhttp.EventFailedOpen}},
		{"fail closed, store closed", false, store.FailClosed, 503, []string{"OnRateLimiterRejected"}},
		{"fail closed, store open", false, store.FailOpen, 200, nil},
		{"fail open, store falls back and has none left", true, store.FallBackLocally, 429, []string{"OnRateLimiterRejected"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			memory := storetest.NewMemory()
			shared, err := store.New(memory, nil)
			require.NoError(t, err)
			t.Cleanup(func() { _ = shared.Close() })
			how := &store.LimiterOptions{Outage: c.outage}
			if c.outage == store.FallBackLocally {
				how.LocalShare = 1
			}
			whole, err := shared.FixedWindow("whole", limits, how)
			require.NoError(t, err)
			keyed, err := shared.PartitionedFixedWindow("keyed", limits, how)
			require.NoError(t, err)
			memory.Fail(errors.New("connection refused"))
			for name, p := range map[string]weirhttp.Policy{"whole": {Limit: weirhttp.Of(whole)}, "keyed": {Limit: weirhttp.ByKey(keyed, nil)}} {
				p.FailOpen = c.failOpen
				var got heard
				l, err := weirhttp.NewLimits(&weirhttp.LimitsOptions{
					Policies: map[string]weirhttp.Policy{name: p},
					Listener: pipeline.ListenerFunc(func(_ context.Context, e pipeline.Event) { got.events = append(got.events, e) }),
				})
				require.NoError(t, err)
				h := l.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}), name)
				last := 0
				for range 2 {
					w := httptest.NewRecorder()
					h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
					last = w.Code
				}
				assert.Equal(t, c.want, last, name)
				var names []string
				for _, e := range got.events[len(got.events)-min(1, len(got.events)):] {
					names = append(names, e.Name)
					assert.Error(t, e.Err)
					assert.Equal(t, e.Name != weirhttp.EventFailedOpen, pipeline.NotCalled(e.Err), "%s: the request goes on", name)
				}
				assert.Equal(t, c.events, names, name)
			}
		})
	}
}

func TestPolicy_SeverityOfARejection(t *testing.T) {
	keyed, err := weirhttp.PerKey(limiter.FactoryFor[string](limiter.FixedWindowOptions{
		PermitLimit: 1, Window: time.Hour,
	}), nil)
	require.NoError(t, err)
	t.Cleanup(func() { _ = keyed.Close() })
	whole := weir.Must(limiter.NewFixedWindow(limiter.FixedWindowOptions{PermitLimit: 1, Window: time.Hour}))
	t.Cleanup(func() { _ = whole.Close() })
	for want, p := range map[pipeline.Severity]weirhttp.Policy{
		pipeline.SeverityWarning: {Limit: weirhttp.ByKey(keyed, nil)},
		pipeline.SeverityError:   {Limit: weirhttp.Of(whole)},
	} {
		var got heard
		l, err := weirhttp.NewLimits(&weirhttp.LimitsOptions{
			Policies: map[string]weirhttp.Policy{"p": p},
			Listener: pipeline.ListenerFunc(func(_ context.Context, e pipeline.Event) { got.events = append(got.events, e) }),
		})
		require.NoError(t, err)
		h := l.Handler(http.NotFoundHandler(), "p")
		for range 2 {
			h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", nil))
		}
		require.Len(t, got.events, 1)
		assert.Equal(t, want, got.events[0].Severity)
	}
}

// A limiter that has not decided within MaxWait has not rejected the request.
func TestPolicy_FailOpenWithMaxWait(t *testing.T) {
	for name, c := range map[string]struct {
		err      error
		failOpen int // the status, with FailOpen
		closed   int // and without
	}{
		"waited in the queue":            {context.DeadlineExceeded, 429, 429},
		"the cause of the end":           {fmt.Errorf("it: %w", context.DeadlineExceeded), 429, 429},
		"another error":                  {errors.New("redis: i/o timeout"), 200, 503},
		"the store has not answered yet": {unanswered{context.DeadlineExceeded}, 200, 503},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				for _, failOpen := range []bool{true, false} {
					p := weirhttp.Policy{Limit: weirhttp.ByRequest(hanging{c.err}), MaxWait: 20 * time.Millisecond, FailOpen: failOpen}
					l, err := weirhttp.NewLimits(&weirhttp.LimitsOptions{Policies: map[string]weirhttp.Policy{"p": p}})
					require.NoError(t, err)
					w := httptest.NewRecorder()
					l.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}), "p").ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
					want := c.closed
					if failOpen {
						want = c.failOpen
					}
					assert.Equal(t, want, w.Code, "FailOpen %v", failOpen)
				}
			})
		})
	}
}

// hanging is a limiter by request that answers with err when the context ends.
type hanging struct{ err error }

func (h hanging) Acquire(ctx context.Context, _ *http.Request, _ int) (limiter.Lease, error) {
	<-ctx.Done()
	return limiter.Lease{}, h.err
}

func (h hanging) TryAcquire(ctx context.Context, r *http.Request, n int) (limiter.Lease, error) {
	return h.Acquire(ctx, r, n)
}

type unanswered struct{ error }

func (e unanswered) Unwrap() error   { return e.error }
func (e unanswered) Undecided() bool { return true }

// While a store hangs and is not yet known to be away, FailOpen admits requests that it does not answer in time.
func TestPolicy_FailOpenWhileAStoreHangs(t *testing.T) {
	for name, how := range map[string]*store.LimiterOptions{"usual": nil, "lent": {Block: 10}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				memory := storetest.NewMemory()
				shared, err := store.New(memory, nil)
				require.NoError(t, err)
				bucket, err := shared.TokenBucket("b", limiter.TokenBucketOptions{TokenLimit: 1000, TokensPerPeriod: 1, ReplenishmentPeriod: time.Second, QueueLimit: 10}, how)
				require.NoError(t, err)
				l, err := weirhttp.NewLimits(&weirhttp.LimitsOptions{Policies: map[string]weirhttp.Policy{"p": {Limit: weirhttp.Of(bucket), MaxWait: 50 * time.Millisecond, FailOpen: true}}})
				require.NoError(t, err)
				h := l.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}), "p")
				memory.Stall(true)
				for range 100 {
					w := httptest.NewRecorder()
					h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
					require.Equal(t, 200, w.Code)
				}
				assert.Error(t, shared.Health().Err, "it has been noticed meanwhile")
				memory.Stall(false)
				require.NoError(t, shared.Close())
			})
		})
	}
}
