package admission

import (
	"context"

	"github.com/weir-go/weir/internal/isnil"
	"github.com/weir-go/weir/internal/validate"
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/rate"
)

// A Limit is a limiter or a pipeline. The transport runs the pipeline. The functions of a limiter get the request and its key, and
// use one of them or neither.
type Limit[R any] struct {
	// Pipeline is nil if the Limit is a limiter.
	Pipeline *pipeline.Pipeline
	// Key returns the key of a request. It is nil if the limiter is not one by key.
	Key func(R) string

	made, valid bool
	keyed       bool // each key has a limiter of its own; if not, all clients share one
	ask         func(ctx context.Context, r R, key string, n int, wait bool) (limiter.Lease, error)
	statistics  func(r R, key string) (limiter.Statistics, error) // nil: the limiter has none
	limits      func(r R, key string) (rate.Limits, error)        // nil: they are not known
}

// Of returns the Limit of a limiter that all requests share.
func Of[R any](l limiter.Limiter) Limit[R] {
	limit := Limit[R]{made: true, valid: !isnil.Value(l)}
	if !limit.valid {
		return limit
	}
	limit.ask = func(ctx context.Context, _ R, _ string, n int, wait bool) (limiter.Lease, error) {
		if wait {
			return l.Acquire(ctx, n)
		}
		return l.TryAcquire(ctx, n)
	}
	if s, ok := l.(limiter.StatisticsProvider); ok {
		limit.statistics = func(R, string) (limiter.Statistics, error) { return s.Statistics(), nil }
	}
	if s, ok := l.(interface{ Limits() rate.Limits }); ok && s.Limits().Kind != rate.Concurrency {
		limit.limits = func(R, string) (rate.Limits, error) { return s.Limits(), nil }
	}
	return limit
}

// ByKey returns the Limit of a limiter for each key.
func ByKey[R any](l limiter.Partitioned[string], key func(R) string) Limit[R] {
	limit := by(l, func(_ R, key string) string { return key })
	limit.Key = key
	return limit
}

// ByRequest returns the Limit of a limiter that is partitioned by the request itself.
func ByRequest[R any](l limiter.Partitioned[R]) Limit[R] {
	return by(l, func(r R, _ string) R { return r })
}

// by returns the Limit of a limiter that is partitioned by the resource.
func by[R, Resource any](l limiter.Partitioned[Resource], of func(r R, key string) Resource) Limit[R] {
	limit := Limit[R]{made: true, valid: !isnil.Value(l), keyed: true}
	if !limit.valid {
		return limit
	}
	limit.ask = func(ctx context.Context, r R, key string, n int, wait bool) (limiter.Lease, error) {
		if wait {
			return l.Acquire(ctx, of(r, key), n)
		}
		return l.TryAcquire(ctx, of(r, key), n)
	}
	if s, ok := l.(interface {
		Statistics(resource Resource) (limiter.Statistics, error)
	}); ok {
		limit.statistics = func(r R, key string) (limiter.Statistics, error) { return s.Statistics(of(r, key)) }
	}
	if s, ok := l.(interface {
		Limits(resource Resource) (rate.Limits, error)
	}); ok {
		limit.limits = func(r R, key string) (rate.Limits, error) { return s.Limits(of(r, key)) }
	}
	return limit
}

// ByPipeline returns the Limit that is a pipeline.
func ByPipeline[R any](p *pipeline.Pipeline) Limit[R] {
	return Limit[R]{made: true, valid: p != nil, Pipeline: p}
}

// validate adds what is wrong with the field Limit of a policy to problems.
func (l *Limit[R]) validate(problems *validate.Problems) {
	switch {
	case !l.made:
		problems.Add("Limit", nil, "must be made by Of, ByKey, ByRequest or ByPipeline")
	case !l.valid:
		problems.Add("Limit", nil, "must not be made of nil")
	}
}
