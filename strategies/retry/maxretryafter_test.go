package retry_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/strategies/ratelimit"
	"github.com/weir-go/weir/strategies/retry"
)

// A limiter whose window is an hour does not park the caller for an hour.
func TestOptions_MaxRetryAfter(t *testing.T) {
	cases := []struct {
		name    string
		options retry.Options
		window  time.Duration
		waits   time.Duration
		gaveUp  bool
	}{
		{"a minute is the default", retry.Options{}, time.Minute, time.Minute, false},
		{"beyond the default", retry.Options{}, time.Minute + 1, 0, true},
		{"beyond a limit", retry.Options{MaxRetryAfter: time.Second}, time.Minute, 0, true},
		{"within a limit", retry.Options{MaxRetryAfter: time.Hour}, time.Hour, time.Hour, false},
		{"no limit", retry.Options{MaxRetryAfter: -1}, 24 * time.Hour, 24 * time.Hour, false},
		{"jitter does not count", retry.Options{Jitter: true}, time.Minute, time.Minute, false},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var events []string
				window := weir.Must(limiter.NewFixedWindow(limiter.FixedWindowOptions{PermitLimit: 1, Window: c.window}))
				c.options.Delay = time.Millisecond
				p := weir.Must(pipeline.Config{
					Strategies: []pipeline.Strategy{retry.New(&c.options), ratelimit.New(window, nil)},
					Listener: pipeline.ListenerFunc(func(_ context.Context, e pipeline.Event) {
						if e.Name == retry.EventMaxRetryAfter {
							events = append(events, fmt.Sprint(e.Severity, e.Duration, e.Attempt, e.Source.Strategy))
						}
					}),
				}.Build())
				require.NoError(t, p.Execute(t.Context(), func(context.Context) error { return nil }))
				began := time.Now()
				err := p.Execute(t.Context(), func(context.Context) error { return nil })
				assert.InDelta(t, c.waits, time.Since(began), float64(time.Millisecond))
				if !c.gaveUp {
					require.NoError(t, err)
					assert.Empty(t, events)
					return
				}
				assert.ErrorIs(t, err, pipeline.ErrRejected)
				assert.ErrorIs(t, err, retry.ErrMaxRetryAfter)
				after, ok := pipeline.RetryAfter(err)
				assert.True(t, ok)
				assert.Equal(t, c.window, after)
				assert.Equal(t, []string{fmt.Sprint(pipeline.SeverityWarning, c.window, 0, "Retry")}, events)
			})
		})
	}
}
