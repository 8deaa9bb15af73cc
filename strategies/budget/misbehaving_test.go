package budget_test

import (
	"context"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/strategies/budget"
	"github.com/weir-go/weir/strategies/hedge"
	"github.com/weir-go/weir/strategies/retry"
)

// hooked is a budget of the program's around a Ratio.
type hooked struct {
	*budget.Ratio
	at func(method string, ctx context.Context)
}

func (h *hooked) Count(ctx context.Context) {
	h.at("Count", ctx)
	h.Ratio.Count(ctx)
}

func (h *hooked) TryAcquire(ctx context.Context) bool {
	h.at("TryAcquire", ctx)
	return h.Ratio.TryAcquire(ctx)
}

func (h *hooked) Refund(ctx context.Context) {
	defer h.at("Refund", ctx)
	h.Ratio.Refund(ctx)
}

// A budget of the program's panics, leaves the goroutine, blocks until it is cancelled, or runs
// another execution. As many extra attempts were taken as were made.
func TestBudget_MethodsThatMisbehave(t *testing.T) {
	misbehaviors := map[string]func(ctx context.Context, again func(ctx context.Context)){
		"panic":  func(context.Context, func(context.Context)) { panic("hook") },
		"goexit": func(context.Context, func(context.Context)) { runtime.Goexit() },
		"block":  func(ctx context.Context, _ func(context.Context)) { <-ctx.Done() },
		"again":  func(ctx context.Context, again func(context.Context)) { again(ctx) },
	}
	strategies := map[string]func(b budget.Budget, before func()) pipeline.Strategy{
		"retry": func(b budget.Budget, before func()) pipeline.Strategy {
			return retry.New(&retry.Options{Budget: b, Delay: -1, OnRetry: func(context.Context, retry.Attempt) { before() }})
		},
		"hedge": func(b budget.Budget, before func()) pipeline.Strategy {
			return hedge.New(&hedge.Options{Budget: b, AtOnce: true, MaxHedges: 3, OnHedge: func(context.Context, hedge.Hedge) { before() }})
		},
		"hedge in turn": func(b budget.Budget, before func()) pipeline.Strategy {
			return hedge.New(&hedge.Options{Budget: b, Delay: -1, MaxHedges: 3, OnHedge: func(context.Context, hedge.Hedge) { before() }})
		},
	}
	for name, build := range strategies {
		for _, method := range []string{"Count", "TryAcquire", "Refund"} {
			for how, misbehave := range misbehaviors {
				t.Run(name+"/"+method+"/"+how, func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						ratio := weir.Must(budget.New(&budget.Options{MinPerSecond: 100, Ratio: -1, Window: time.Minute}))
						var execute func(ctx context.Context)
						armed := true
						b := &hooked{Ratio: ratio, at: func(where string, ctx context.Context) {
							if armed && where == method {
								armed = false
								misbehave(ctx, execute)
							}
						}}
						attempts := make(chan struct{}, 100)
						var cancel context.CancelFunc
						p := weir.Must(pipeline.New("p", build(b, func() {
							if method == "Refund" && armed {
								cancel() // the attempt is not made, and is given back
							}
						})))
						execute = func(ctx context.Context) {
							_ = p.Execute(ctx, func(context.Context) error {
								attempts <- struct{}{}
								return assert.AnError
							})
						}
						ended := make(chan struct{})
						go func() {
							defer close(ended)
							defer func() { _ = recover() }()
							var ctx context.Context
							ctx, cancel = context.WithTimeout(t.Context(), 30*time.Second)
							defer cancel()
							execute(ctx)
						}()
						<-ended
						synctest.Wait()
						made := len(attempts)
						armed = false
						taken := ratio.Statistics().Taken
						if made > 0 {
							assert.LessOrEqual(t, taken, int64(made-1), "each extra attempt comes after a first one")
						} else {
							assert.Zero(t, taken)
						}
						execute(t.Context())
						synctest.Wait()
						assert.Equal(t, taken+3, ratio.Statistics().Taken)
						assert.Len(t, attempts, made+4)
					})
				})
			}
		}
	}
}
