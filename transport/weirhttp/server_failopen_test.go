package weirhttp_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/storetest"
	"github.com/weir-go/weir/transport/weirhttp"
)

// heard keeps the events of a test.
type heard struct{ events []pipeline.Event }

func TestPolicy_FailOpenWithAStoreThatIsAway(t *testing.T) {
	limits := limiter.FixedWindowOptions{PermitLimit: 1, Window: time.Hour}
	for _, c := range []struct {
		name     string
		failOpen bool
		outage   store.Outage
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
			shared, err := store.New(memory, store.Options{})
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
			for name, p := range map[string]weirhttp.Policy{"whole": {Limiter: whole}, "keyed": {Partitioned: keyed}} {
				p.FailOpen = c.failOpen
				var got heard
				l, err := weirhttp.New(weirhttp.Options{
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
				}
				assert.Equal(t, c.events, names, name)
			}
		})
	}
}

func TestPolicy_SeverityOfARejection(t *testing.T) {
	keyed, err := weirhttp.PerKey(limiter.FixedWindowFactory[string](limiter.FixedWindowOptions{
		PermitLimit: 1, Window: time.Hour,
	}), limiter.PartitionedOptions{})
	require.NoError(t, err)
	t.Cleanup(func() { _ = keyed.Close() })
	whole := limiter.Must(limiter.NewFixedWindow(limiter.FixedWindowOptions{PermitLimit: 1, Window: time.Hour}))
	t.Cleanup(func() { _ = whole.Close() })
	for want, p := range map[pipeline.Severity]weirhttp.Policy{
		pipeline.Warning: {Partitioned: keyed},
		pipeline.Error:   {Limiter: whole},
	} {
		var got heard
		l, err := weirhttp.New(weirhttp.Options{
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
