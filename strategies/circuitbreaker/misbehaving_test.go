package circuitbreaker_test

import (
	"context"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/strategies/circuitbreaker"
)

// misbehaviors are what a function of the program can do. The context has a deadline.
var misbehaviors = map[string]func(ctx context.Context, p *pipeline.Pipeline, c *circuitbreaker.Control){
	"panic":  func(context.Context, *pipeline.Pipeline, *circuitbreaker.Control) { panic("hook") },
	"goexit": func(context.Context, *pipeline.Pipeline, *circuitbreaker.Control) { runtime.Goexit() },
	"block":  func(ctx context.Context, _ *pipeline.Pipeline, _ *circuitbreaker.Control) { <-ctx.Done() },
	"again": func(ctx context.Context, p *pipeline.Pipeline, _ *circuitbreaker.Control) {
		_ = p.Execute(ctx, succeed)
	},
	"again, and it fails": func(ctx context.Context, p *pipeline.Pipeline, _ *circuitbreaker.Control) {
		_ = p.Execute(ctx, fail)
	},
	"order": func(ctx context.Context, p *pipeline.Pipeline, c *circuitbreaker.Control) {
		c.Isolate()
		_ = p.Execute(ctx, succeed)
		c.Close()
		_ = p.Execute(ctx, succeed)
	},
}

// hooks set each function of the options to one that calls f.
var hooks = map[string]func(o *circuitbreaker.Options, f func(ctx context.Context)){
	"Handle": func(o *circuitbreaker.Options, f func(ctx context.Context)) {
		o.Handle = func(result any, err error) bool {
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			f(ctx)
			return err != nil
		}
	},
	"BreakDurationFunc": func(o *circuitbreaker.Options, f func(ctx context.Context)) {
		o.BreakDurationFunc = func(ctx context.Context, _ circuitbreaker.Transition) time.Duration { f(ctx); return 0 }
	},
	"OnOpened": func(o *circuitbreaker.Options, f func(ctx context.Context)) {
		o.OnOpened = func(ctx context.Context, _ circuitbreaker.Transition) { f(ctx) }
	},
	"OnClosed": func(o *circuitbreaker.Options, f func(ctx context.Context)) {
		o.OnClosed = func(ctx context.Context, _ circuitbreaker.Transition) { f(ctx) }
	},
	"OnHalfOpened": func(o *circuitbreaker.Options, f func(ctx context.Context)) {
		o.OnHalfOpened = func(ctx context.Context, _ circuitbreaker.Transition) { f(ctx) }
	},
	"listener": nil,
	"callback": nil,
}

// Whatever a function of the program does, no probe of a half-open circuit stays counted when its
// execution is over, and the circuit closes as soon as what it protects works again.
func TestStrategy_FunctionsThatMisbehave(t *testing.T) {
	for hook, set := range hooks {
		for how, misbehave := range misbehaviors {
			for _, at := range []int{0, 1, 2} { // the execution that opens it, the probe that fails, the probe that succeeds
				t.Run(hook+"/"+how+"/"+[]string{"closed", "failing probe", "probe"}[at], func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						var p *pipeline.Pipeline
						armed, called := false, false
						control := new(circuitbreaker.Control)
						f := func(ctx context.Context) {
							if armed {
								armed, called = false, true
								misbehave(ctx, p, control)
							}
						}
						o := circuitbreaker.Options{FailureRatio: -1, ConsecutiveFailures: 1, BreakDuration: time.Second, Control: control}
						if set != nil {
							set(&o, f)
						}
						breaker := circuitbreaker.New(&o)
						p = weir.Must(pipeline.Config{
							Strategies: []pipeline.Strategy{breaker},
							Listener: pipeline.ListenerFunc(func(ctx context.Context, e pipeline.Event) {
								if hook == "listener" && e.Source.Strategy != "" {
									f(ctx)
								}
							}),
						}.Build())
						for i, fn := range []func(context.Context) error{fail, fail, succeed} {
							armed = i == at
							ended := make(chan struct{})
							go func() {
								defer close(ended)
								defer func() { _ = recover() }()
								ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
								defer cancel()
								_ = p.Execute(ctx, func(ctx context.Context) error {
									if hook == "callback" {
										f(ctx)
									}
									return fn(ctx)
								})
							}()
							<-ended
							assert.Zero(t, breaker.Statistics().Probes)
							time.Sleep(time.Minute)
						}
						armed = false
						require.NoError(t, p.Execute(t.Context(), succeed), "called: %v", called)
						assert.Equal(t, circuitbreaker.Closed, breaker.State())
						assert.Zero(t, breaker.Statistics().Probes)
					})
				})
			}
		}
	}
}

// A half-open circuit opens again also where BreakDurationFunc does not return.
func TestOptions_BreakDurationFuncThatDoesNotReturnForAProbe(t *testing.T) {
	for how, leave := range map[string]func(){"panic": func() { panic("hook") }, "goexit": runtime.Goexit} {
		synctest.Test(t, func(t *testing.T) {
			c := newCircuit(t, circuitbreaker.Options{
				FailureRatio: -1, ConsecutiveFailures: 1, BreakDuration: time.Second,
				BreakDurationFunc: func(_ context.Context, tr circuitbreaker.Transition) time.Duration {
					if tr.From == circuitbreaker.HalfOpen {
						leave()
					}
					return 0
				},
			})
			c.times(t, 1, fail)
			time.Sleep(time.Second)
			probe := c.start(t.Context())
			c.rejects(t, circuitbreaker.HalfOpen, 0)
			assert.ErrorIs(t, probe.finish(fail), pipeline.ErrAborted, how)
			c.rejects(t, circuitbreaker.Open, time.Second)
			time.Sleep(time.Second)
			c.times(t, 1, succeed)
			assert.Equal(t, circuitbreaker.Closed, c.State())
		})
	}
}
