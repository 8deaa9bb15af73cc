package fallback_test

import (
	"context"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/strategies/fallback"
)

// Each function of the program panics, leaves the goroutine, blocks until it is cancelled, or calls
// back. The first two go through to the caller, and the strategy goes on working.
func TestStrategy_FunctionsThatMisbehave(t *testing.T) {
	misbehaviors := map[string]func(ctx context.Context, again func(ctx context.Context)){
		"panic":  func(context.Context, func(context.Context)) { panic("hook") },
		"goexit": func(context.Context, func(context.Context)) { runtime.Goexit() },
		"block":  func(ctx context.Context, _ func(context.Context)) { <-ctx.Done() },
		"again":  func(ctx context.Context, again func(context.Context)) { again(ctx) },
	}
	for _, hook := range []string{"Handle", "OnFallback", "action", "listener", "callback"} {
		for how, misbehave := range misbehaviors {
			t.Run(hook+"/"+how, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					var execute func(ctx context.Context) (string, error)
					armed := true
					at := func(where string, ctx context.Context) {
						if armed && where == hook {
							armed = false
							misbehave(ctx, func(ctx context.Context) {
								v, err := execute(ctx)
								assert.NoError(t, err)
								assert.Equal(t, "instead", v)
							})
						}
					}
					ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
					defer cancel()
					p := weir.Must(pipeline.Config{
						Strategies: []pipeline.Strategy{fallback.New(
							func(ctx context.Context, _ any, _ error) (any, error) { at("action", ctx); return "instead", nil },
							&fallback.Options{
								Handle:     func(_ any, err error) bool { at("Handle", ctx); return err != nil },
								OnFallback: func(ctx context.Context, _ fallback.Outcome) { at("OnFallback", ctx) },
							})},
						Listener: pipeline.ListenerFunc(func(ctx context.Context, e pipeline.Event) {
							if e.Name == fallback.EventFallback {
								at("listener", ctx)
							}
						}),
					}.Build())
					execute = func(ctx context.Context) (string, error) {
						return pipeline.ExecuteValue(ctx, p, func(ctx context.Context) (string, error) {
							at("callback", ctx)
							return "", errBoom
						})
					}
					returned := false
					ended := make(chan struct{})
					go func() {
						defer close(ended)
						defer func() { _ = recover() }()
						v, err := execute(ctx)
						returned = true
						assert.NoError(t, err)
						assert.Equal(t, "instead", v)
					}()
					<-ended
					assert.Equal(t, how == "block" || how == "again", returned)
					assert.False(t, armed)
					v, err := execute(t.Context())
					assert.NoError(t, err)
					assert.Equal(t, "instead", v)
				})
			})
		}
	}
}
