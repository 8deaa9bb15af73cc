package timeout_test

import (
	"context"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/strategies/timeout"
)

// parent is a context of the program's that calls f when it is asked for Done.
type parent struct {
	context.Context
	f func(ctx context.Context)
}

func (p *parent) Done() <-chan struct{} {
	p.f(p.Context)
	return p.Context.Done()
}

// Each function of the program panics, leaves the goroutine, blocks until it is cancelled, or calls
// back. The callback's context ends in every case, and the strategy goes on working.
func TestStrategy_FunctionsThatMisbehave(t *testing.T) {
	misbehaviors := map[string]func(ctx context.Context, p *pipeline.Pipeline){
		"panic":  func(context.Context, *pipeline.Pipeline) { panic("hook") },
		"goexit": func(context.Context, *pipeline.Pipeline) { runtime.Goexit() },
		"block":  func(ctx context.Context, _ *pipeline.Pipeline) { <-ctx.Done() },
		"again": func(ctx context.Context, p *pipeline.Pipeline) {
			_ = p.Execute(ctx, func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() })
		},
	}
	for _, hook := range []string{"Func", "OnTimeout", "listener", "callback", "the caller's context"} {
		for how, misbehave := range misbehaviors {
			for _, lazy := range []bool{true, false} {
				t.Run(hook+"/"+how+map[bool]string{true: "/lazy"}[lazy], func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						var p *pipeline.Pipeline
						var armed atomic.Bool // the context package asks the caller's context from a timer, too
						at := func(where string, ctx context.Context) {
							if where == hook && armed.CompareAndSwap(true, false) {
								misbehave(ctx, p)
							}
						}
						p = weir.Must(pipeline.Config{
							Strategies: []pipeline.Strategy{timeout.New(0, &timeout.Options{
								Func:      func(ctx context.Context) time.Duration { at("Func", ctx); return time.Second },
								OnTimeout: func(ctx context.Context, _ time.Duration) { at("OnTimeout", ctx) },
							})},
							Listener: pipeline.ListenerFunc(func(ctx context.Context, e pipeline.Event) {
								if e.Name == timeout.EventTimeout {
									at("listener", ctx)
								}
							}),
						}.Build())
						late := func(ctx context.Context) error {
							if lazy { // does not ask for Done
								time.Sleep(2 * time.Second)
							} else {
								<-ctx.Done()
							}
							return ctx.Err()
						}
						if !lazy {
							for range 100 { // the strategy learns that its callbacks ask for Done
								_ = p.Execute(t.Context(), func(ctx context.Context) error { _ = ctx.Done(); return nil })
							}
						}
						armed.Store(true)
						var within context.Context
						ended := make(chan struct{})
						go func() {
							defer close(ended)
							defer func() { _ = recover() }()
							ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
							defer cancel()
							_ = p.Execute(&parent{ctx, func(ctx context.Context) { at("the caller's context", ctx) }}, func(ctx context.Context) error {
								within = ctx
								at("callback", ctx)
								return late(ctx)
							})
						}()
						<-ended
						if within != nil {
							assert.Error(t, within.Err())
							<-within.Done()
							_, _ = within.Deadline()
						}
						armed.Store(false)
						_, ok := p.Execute(t.Context(), late).(*timeout.Error)
						require.True(t, ok)
					})
				})
			}
		}
	}
}
