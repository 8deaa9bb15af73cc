// Package adaptive lets files of package reload have the limiters of kind adaptive and throttler. A program imports it for its effect:
//
//	import _ "github.com/weir-go/weir/reload/adaptive"
//
// It is a package of its own because package strategies/adaptive links failsafe-go, whose engines it runs. A program whose files have no
// such limiter does without it: a file that has one is refused, and so is the handle of a rate limiter, with an error that says which
// import is missing.
package adaptive

import (
	"fmt"
	"reflect"

	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/rate"
	"github.com/weir-go/weir/reload/internal/model"
	"github.com/weir-go/weir/strategies/adaptive"
	"github.com/weir-go/weir/strategies/ratelimit"
)

func init() {
	model.Adaptive = func(l limiter.Limiter, o ratelimit.Options, handle func(any, error) bool) pipeline.Strategy {
		return adaptive.New(l, &adaptive.Options{Name: o.Name, Permits: o.Permits, Handle: handle})
	}
	model.SetLearning("adaptive", reflect.TypeFor[adaptive.LimiterOptions](), describe, func(options any) (limiter.Limiter, error) {
		o := options.(adaptive.LimiterOptions)
		return adaptive.NewLimiter(&o)
	})
	model.SetLearning("throttler", reflect.TypeFor[adaptive.ThrottlerOptions](), nil, func(options any) (limiter.Limiter, error) {
		o := options.(adaptive.ThrottlerOptions)
		return adaptive.NewThrottler(&o)
	})
}

func describe(options any) string {
	o := options.(adaptive.LimiterOptions)
	// Only options whose defaults depend on each other are passed on: others can make a limiter that needs much memory.
	if l, err := adaptive.NewLimiter(&adaptive.LimiterOptions{MinLimit: o.MinLimit, MaxLimit: o.MaxLimit, InitialLimit: o.InitialLimit}); err == nil {
		is := l.Options()
		o.MinLimit, o.MaxLimit, o.InitialLimit = is.MinLimit, is.MaxLimit, is.InitialLimit
	}
	return fmt.Sprintf("adaptive limiter: %d to %d at once, %d at first", o.MinLimit, o.MaxLimit, o.InitialLimit) +
		rate.QueueText(o.QueueLimit, o.QueueOrder)
}
