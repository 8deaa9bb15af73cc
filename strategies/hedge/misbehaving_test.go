package hedge_test

import (
	"bytes"
	"context"
	"log/slog"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/strategies/budget"
	"github.com/weir-go/weir/strategies/hedge"
)

// leaving are the ways in which a function of the program does not return.
var leaving = map[string]func(){"panic": func() { panic("hook") }, "goexit": runtime.Goexit}

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

// Dispose on the goroutine of a loser has no caller: a panic there must not end the process.
func TestOptions_DisposeThatDoesNotReturn(t *testing.T) {
	for how, leave := range leaving {
		t.Run(how, func(t *testing.T) {
			out := log(t)
			synctest.Test(t, func(t *testing.T) {
				p := with(&hedge.Options{AtOnce: true, Dispose: func(any, error) { leave() }})
				v, err := pipeline.ExecuteValue(t.Context(), p, func(ctx context.Context) (string, error) {
					if hedge.AttemptNumber(ctx) == 0 {
						time.Sleep(time.Second)
						return "late", nil
					}
					time.Sleep(time.Millisecond) // until the other has begun
					return "first", nil
				})
				assert.NoError(t, err)
				assert.Equal(t, "first", v)
				time.Sleep(2 * time.Second)
			})
			if how == "panic" {
				assert.Contains(t, out.String(), `hook="hedge: Dispose" panic=hook`)
			}
		})
	}
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

// Every outcome is disposed of exactly once, whichever function of the program does not return.
func TestStrategy_DisposesOfAllIfAFunctionDoesNotReturn(t *testing.T) {
	for how, leave := range leaving {
		for _, hook := range []string{"Dispose", "Handle", "winner's report", "loser's report"} {
			t.Run(hook+" "+how, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					var mu sync.Mutex
					disposed, left := 0, false
					once := func(at string) {
						mu.Lock()
						now := at == hook && !left
						left = left || now
						mu.Unlock()
						if now {
							leave()
						}
					}
					const attempts = 4
					p := weir.Must(pipeline.Config{
						Strategies: []pipeline.Strategy{hedge.New(&hedge.Options{
							AtOnce: true, MaxHedges: attempts - 1,
							Handle: func(any, error) bool { once("Handle"); return false },
							Dispose: func(result any, _ error) {
								if result == nil {
									return
								}
								mu.Lock()
								disposed++
								mu.Unlock()
								once("Dispose")
							},
						})},
						Listener: pipeline.ListenerFunc(func(_ context.Context, e pipeline.Event) {
							if e.Name == pipeline.EventExecutionAttempt && e.Err == nil {
								once("winner's report")
								once("loser's report")
							}
						}),
					}.Build())
					made, returned := 0, 0
					away(func() {
						_, _ = pipeline.ExecuteValue(t.Context(), p, func(context.Context) (string, error) {
							mu.Lock()
							defer mu.Unlock()
							made++
							return "body", nil
						})
						returned++
					})
					synctest.Wait()
					assert.Equal(t, made, disposed+returned)
				})
			})
		}
	}
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
