package chaos_test

import (
	"context"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/strategies/chaos"
)

// Each function of the program panics, leaves the goroutine, blocks until it is cancelled, or calls
// back. The first two go through to the caller; after a block the callback does not run; and the
// strategy goes on working.
func TestStrategies_FunctionsThatMisbehave(t *testing.T) {
	misbehaviors := map[string]func(ctx context.Context, again func(ctx context.Context)){
		"panic":  func(context.Context, func(context.Context)) { panic("hook") },
		"goexit": func(context.Context, func(context.Context)) { runtime.Goexit() },
		"block":  func(ctx context.Context, _ func(context.Context)) { <-ctx.Done() },
		"again":  func(ctx context.Context, again func(context.Context)) { again(ctx) },
	}
	type hook = func(ctx context.Context)
	with := func(set func(o *chaos.Options, f hook)) func(f hook) []pipeline.Strategy {
		return func(f hook) (all []pipeline.Strategy) {
			o := always
			set(&o, f)
			for _, make := range makers {
				all = append(all, make(o))
			}
			return all
		}
	}
	hooks := map[string]func(f hook) []pipeline.Strategy{
		"EnabledFunc": with(func(o *chaos.Options, f hook) {
			o.EnabledFunc = func(ctx context.Context) bool { f(ctx); return true }
		}),
		"RateFunc": with(func(o *chaos.Options, f hook) {
			o.RateFunc = func(ctx context.Context) float64 { f(ctx); return 1 }
		}),
		"OnInjected": with(func(o *chaos.Options, f hook) {
			o.OnInjected = func(ctx context.Context, _ chaos.Injection) { f(ctx) }
		}),
		"ErrFunc": func(f hook) []pipeline.Strategy {
			return []pipeline.Strategy{chaos.NewFault(&chaos.FaultOptions{Options: always, ErrFunc: func(ctx context.Context) error { f(ctx); return nil }})}
		},
		"LatencyFunc": func(f hook) []pipeline.Strategy {
			return []pipeline.Strategy{chaos.NewLatency(&chaos.LatencyOptions{Options: always, LatencyFunc: func(ctx context.Context) time.Duration { f(ctx); return 1 }})}
		},
		"ResultFunc": func(f hook) []pipeline.Strategy {
			return []pipeline.Strategy{chaos.NewOutcome(&chaos.OutcomeOptions{Options: always, ResultFunc: func(ctx context.Context) (chaos.Result, bool) { f(ctx); return chaos.Result{}, false }})}
		},
		"Behavior": func(f hook) []pipeline.Strategy {
			return []pipeline.Strategy{chaos.NewBehavior(&chaos.BehaviorOptions{Options: always, Behavior: func(ctx context.Context) error { f(ctx); return nil }})}
		},
	}
	for name, build := range hooks {
		for how, misbehave := range misbehaviors {
			t.Run(name+"/"+how, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					var execute func(ctx context.Context)
					armed := false
					for _, s := range build(func(ctx context.Context) {
						if armed {
							armed = false
							misbehave(ctx, execute)
						}
					}) {
						p := weir.Must(pipeline.New("p", s))
						runs := 0
						execute = func(ctx context.Context) {
							_ = p.Execute(ctx, func(context.Context) error { runs++; return nil })
						}
						execute(t.Context())
						each := runs // 0 where something is injected in place of it

						armed, runs = true, 0
						returned := false
						ended := make(chan struct{})
						go func() {
							defer close(ended)
							defer func() { _ = recover() }()
							ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
							defer cancel()
							execute(ctx)
							returned = true
						}()
						<-ended
						assert.False(t, armed)
						switch how {
						case "again":
							assert.Equal(t, 2*each, runs)
							assert.True(t, returned)
						case "block":
							assert.Zero(t, runs)
							assert.True(t, returned)
						default:
							assert.Zero(t, runs)
							assert.False(t, returned)
						}
						runs = 0
						execute(t.Context())
						assert.Equal(t, each, runs)
					}
				})
			})
		}
	}
}
