package reload

import (
	"errors"
	"slices"

	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/registry"
	"github.com/weir-go/weir/reload/internal/document"
	"github.com/weir-go/weir/reload/internal/model"
	"github.com/weir-go/weir/strategies/adaptive"
)

var errNotMade = errors.New("it could not be made")

// adaptiveLimiter returns the registry's adaptive limiter of that name. It keeps what it has learnt as long as its
// options stay the same.
func adaptiveLimiter(b *registry.Builder, name string, o adaptive.LimiterOptions) (limiter.Limiter, error) {
	l := registry.Keep(b, name, writtenOptions(o), registry.Kept[*adaptive.Limiter, string]{
		Kind: "adaptive limiter",
		Make: func(string) (*adaptive.Limiter, error) { return adaptive.NewLimiter(&o) },
	})
	if l == nil { // the registry reports the reason
		return nil, errNotMade
	}
	return l, nil
}

// throttler returns the registry's throttler of that name. Like an adaptive limiter, it keeps what it has learnt.
func throttler(b *registry.Builder, name string, o adaptive.ThrottlerOptions) (limiter.Limiter, error) {
	t := registry.Keep(b, name, o, registry.Kept[*adaptive.Throttler, adaptive.ThrottlerOptions]{
		Kind: "throttler",
		Make: func(o adaptive.ThrottlerOptions) (*adaptive.Throttler, error) { return adaptive.NewThrottler(&o) },
	})
	if t == nil {
		return nil, errNotMade
	}
	return t, nil
}

// adapts reports whether l or one of its members learns from the outcomes of executions. A program's own kind perhaps
// does.
func adapts(l *model.Limiter) (own, perhaps bool) {
	switch l.Options.(type) {
	case adaptive.LimiterOptions, adaptive.ThrottlerOptions:
		return true, true
	}
	perhaps = ownLimiters[l.Kind] == nil
	for _, m := range l.Members {
		o, p := adapts(m)
		own, perhaps = own || o, perhaps || p
	}
	return own, perhaps
}

// checkAdapting refuses rate limiters with options that their limiter does not support. No chain may contain itself.
func (d *decoder) checkAdapting(f *File) {
	for _, p := range f.has.Pipelines {
		for i, s := range p.Strategies {
			o, ok := s.Options.(model.RateLimiterOptions)
			if !ok || !complete(s.Limiter) {
				continue
			}
			own, perhaps := adapts(s.Limiter)
			at := p.Places[i]
			if o.Shadow && own {
				d.Add(at.Node, document.Child(at.Path, "shadow"), "it is not for an adaptive limiter or a throttler, which learns nothing from executions that go past it")
			}
			if o.Handle != "" && !perhaps {
				d.Add(at.Node, document.Child(at.Path, "handle"), "only an adaptive limiter or a throttler learns what came of an execution, this limiter is neither")
			}
		}
	}
}

// complete reports whether l and all its members were found.
func complete(l *model.Limiter) bool {
	return l != nil && !slices.ContainsFunc(l.Members, func(m *model.Limiter) bool { return !complete(m) })
}
