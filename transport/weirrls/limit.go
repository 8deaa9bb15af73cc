package weirrls

import (
	"context"
	"math"

	"google.golang.org/protobuf/types/known/structpb"

	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/rate"
	"github.com/weir-go/weir/store"
)

// A limit is a Limit that is ready for requests.
type limit struct {
	Limit
	source   pipeline.Source
	metadata *structpb.Struct
	// charger and chargers are Limiter and Partitioned, if they have a method Charge.
	charger  limiter.Charger
	chargers limiter.PartitionedCharger[string]
	// remote reports whether the limiter can take time, as those of a store do. Those of package limiter decide at once.
	remote bool
}

// tryAcquire asks the limiter. key is that of Partitioned.
func (l *limit) tryAcquire(ctx context.Context, key string, n int) (limiter.Lease, error) {
	if l.Partitioned != nil {
		return l.Partitioned.TryAcquire(ctx, key, n)
	}
	return l.Limiter.TryAcquire(ctx, n)
}

// charges reports whether the limiter has a method Charge.
func (l *limit) charges() bool { return l.charger != nil || l.chargers != nil }

// charge calls Charge of the limiter, which must have it.
func (l *limit) charge(ctx context.Context, key string, n int) (limiter.Level, error) {
	if l.chargers != nil {
		return l.chargers.Charge(ctx, key, n)
	}
	return l.charger.Charge(ctx, n)
}

// available returns how many permits the limiter has, by its statistics.
func (l *limit) available(key string) (n int64, ok bool) {
	if s, ok := l.Limiter.(limiter.StatisticsProvider); ok {
		return s.Statistics().AvailablePermits, true
	}
	if s, ok := l.Partitioned.(interface {
		Statistics(key string) (limiter.Statistics, error)
	}); ok {
		statistics, err := s.Statistics(key)
		return statistics.AvailablePermits, err == nil
	}
	return 0, false
}

// limiterOf returns Limiter or Partitioned.
func (l *Limit) limiterOf() any {
	if l.Partitioned != nil {
		return l.Partitioned
	}
	return l.Limiter
}

// canTakeTime reports whether a limiter is not one of those of package limiter, which decide at once.
func canTakeTime(l any) bool {
	switch l.(type) {
	case *limiter.TokenBucket, *limiter.FixedWindow, *limiter.SlidingWindow, *limiter.Calendar, *limiter.PartitionedLimiter[string, string]:
		return false
	default:
		return true
	}
}

// lends reports whether a limiter is known to lend its permits.
func lends(l any) bool {
	switch l := l.(type) {
	case interface{ Limits() rate.Limits }:
		return l.Limits().Kind == rate.Concurrency
	case *store.Partitioned:
		limits, _ := l.Limits("")
		return limits.Kind == rate.Concurrency
	case *limiter.PartitionedLimiter[string, string]:
		return lendsForEachKey(l)
	default:
		return false
	}
}

// limits returns the limits in force, for the answer; ok is false if they are not known. key is that of Partitioned.
func (l *limit) limits(key string) (limits rate.Limits, ok bool) {
	var err error
	defer rescue(&err)
	switch of := l.limiterOf().(type) {
	case interface{ Limits() rate.Limits }:
		limits = of.Limits()
	case interface {
		Limits(key string) (rate.Limits, error)
	}:
		limits, err = of.Limits(key)
	}
	return limits, err == nil && limits.Permits > 0
}

// toUint32 returns n, or the nearest number that the protocol has room for.
func toUint32(n int64) uint32 { return uint32(min(max(n, 0), math.MaxUint32)) }
