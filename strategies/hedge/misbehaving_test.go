package hedge_test

import (
	"bytes"
	"context"
	"log/slog"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/strategies/budget"
	"github.com/weir-go/weir/strategies/hedge"
)

// away runs f on a goroutine of its own, which f may leave.
func away(f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() { _ = recover() }()
		f()
	}()
	<-done
}

// log collects what slog.Default logs until the test ends.
func log(t *testing.T) *bytes.Buffer {
	out := new(bytes.Buffer)
	was := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(out, nil)))
	t.Cleanup(func() { slog.SetDefault(was) })
	return out
}

// A loser that panics when the execution is over, without a Dispose to tell, is logged.
func TestStrategy_LoserThatPanicsIsLogged(t *testing.T) {
	out := log(t)
	synctest.Test(t, func(t *testing.T) {
		p := with(&hedge.Options{AtOnce: true})
		assert.NoError(t, p.Execute(t.Context(), func(ctx context.Context) error {
			if hedge.AttemptNumber(ctx) == 0 {
				time.Sleep(time.Second)
				panic("late")
			}
			time.Sleep(time.Millisecond) // until the other has begun
			return nil
		}))
		time.Sleep(2 * time.Second)
	})
	assert.Contains(t, out.String(), `hook="hedge: an attempt that lost" panic=late`)
}

// A hedge that does not start costs the budget nothing.
func TestBudget_ChargesOnlyHedgesThatStart(t *testing.T) {
	for _, delay := range []time.Duration{time.Second, -1} {
		for name, onHedge := range map[string]func(cancel func()){
			"panic":  func(func()) { panic("hook") },
			"goexit": func(func()) { runtime.Goexit() },
			"cancel": func(cancel func()) { cancel() },
		} {
			synctest.Test(t, func(t *testing.T) {
				extra := weir.Must(budget.New(&budget.Options{MinPerSecond: 5, Ratio: -1}))
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				p := with(&hedge.Options{Delay: delay, Budget: extra, OnHedge: func(context.Context, pipeline.Event) { onHedge(cancel) }})
				attempts := 0
				away(func() {
					_ = p.Execute(ctx, func(ctx context.Context) error {
						if attempts++; delay > 0 {
							<-ctx.Done()
							return ctx.Err()
						}
						return errBoom
					})
				})
				assert.Zero(t, extra.Statistics().Taken, name)
				assert.Equal(t, 1, attempts, name)
			})
		}
	}
}
