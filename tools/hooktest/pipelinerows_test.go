package hooktest

import (
	"context"

	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/strategies/adaptive"
	"github.com/weir-go/weir/strategies/ratelimit"
)

// A listener is one of the program's, of which one method is the hook.
type listener struct {
	x    *scene
	hook string
}

func (l listener) at(ctx context.Context, method string) {
	if l.hook == method {
		l.x.hit(ctx)
	}
}

func (l listener) Hooks() pipeline.Hooks {
	return pipeline.Hooks{
		OnEvent: func(ctx context.Context, e pipeline.Event) {
			l.at(ctx, "OnEvent")
			l.at(ctx, e.Name)
		},
		Enabled: func(ctx context.Context) bool { l.at(ctx, "Enabled"); return true },
		OnMeasurement: func(ctx context.Context, e pipeline.Event) func(context.Context, pipeline.Event) {
			l.at(ctx, "OnMeasurement")
			l.at(ctx, e.Name)
			return func(ctx context.Context, _ pipeline.Event) { l.at(ctx, "ended") }
		},
		InForce: func(*pipeline.Pipeline) { l.at(context.Background(), "InForce") },
		Forget:  func(pipeline.Source) { l.at(context.Background(), "Forget") },
	}
}

// limited is a pipeline with two rate limiters, whose permits must not be lost.
func (x *scene) limited(l pipeline.Listener) drill {
	return x.runs(x.heard(pipeline.Listeners(listener{x: x}, l, listener{x: x}),
		ratelimit.New(x.limiter(), nil), adaptive.New(adaptiveLimiter(x), nil)), nil)
}

var pipelineRows = []row{
	{"pipeline.Hooks.OnEvent pipeline.Listener.Hooks pipeline.ListenerFunc pipeline.Config.Listener pipeline.Listeners(ls) pipeline.HooksOf(l)", caller, func(x *scene) drill {
		return x.limited(listener{x, pipeline.EventPipelineExecuting})
	}},
	{"pipeline.Hooks.Enabled", caller, func(x *scene) drill {
		return x.runs(x.heard(listener{x, "Enabled"}, ratelimit.New(x.limiter(), nil)), nil)
	}},
	{"pipeline.Hooks.OnMeasurement", caller, func(x *scene) drill { return x.limited(listener{x, "OnMeasurement"}) }},
	{"pipeline.Hooks.OnMeasurement.ended", caller, func(x *scene) drill { return x.limited(listener{x, "ended"}) }},
	{"pipeline.Next.Announce(hook)", caller, func(x *scene) drill {
		announce := pipeline.StrategyFunc(func(ctx context.Context, next pipeline.Next) (any, error) {
			next.Announce(ctx, pipeline.Event{}, func(ctx context.Context, _ pipeline.Event) { x.hit(ctx) })
			return next.Run(ctx)
		})
		return x.succeeds(ratelimit.New(x.limiter(), nil), announce)
	}},
	{"pipeline.Strategy.Execute pipeline.StrategyFunc pipeline.Config.Strategies pipeline.New(strategies)", caller, func(x *scene) drill {
		own := pipeline.StrategyFunc(func(ctx context.Context, next pipeline.Next) (any, error) {
			x.hit(ctx)
			return next.Run(ctx)
		})
		return x.succeeds(ratelimit.New(x.limiter(), nil), own, ratelimit.New(x.limiter(), nil))
	}},
	{"pipeline.Strategy.Close", caught, func(x *scene) drill {
		p := x.pipeline(closing{x})
		return drill{do: func() { _ = p.Close() }, also: x.runs(p, nil).do}
	}},
	{"pipeline.ExecuteValue(fn) pipeline.Pipeline.Execute(fn)", caller, func(x *scene) drill {
		p := x.pipeline(ratelimit.New(x.limiter(), nil), adaptive.New(adaptiveLimiter(x), nil))
		return drill{do: func() {
			_, _ = pipeline.ExecuteValue(x.context(), p, func(ctx context.Context) (int, error) { x.hit(ctx); return 1, nil })
		}}
	}},
}

// closing is a strategy whose Close is the hook.
type closing struct{ x *scene }

func (closing) Execute(ctx context.Context, next pipeline.Next) (any, error) { return next.Run(ctx) }
func (c closing) Close() error                                               { c.x.hit(); return nil }

func adaptiveLimiter(x *scene) *adaptive.Limiter {
	l := must(adaptive.NewLimiter(nil))
	x.then(func() { _ = l.Close() })
	return l
}
