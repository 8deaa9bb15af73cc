package weirrls

import (
	"context"
	"math"
	"time"

	"google.golang.org/protobuf/types/known/structpb"

	"github.com/weir-go/weir/internal/saturate"
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/pipeline"
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
	size   func() size // nil: not known
}

// A size is what the answer tells about a limiter.
type size struct {
	requests int64
	per      time.Duration
	// A bucket gets refill permits back in each period; refill is 0 for a window.
	refill int64
	period time.Duration
}

// full returns how long it takes at most until all permits are back if so many are left.
func (s size) full(left int64) time.Duration {
	missing := s.requests - max(left, 0)
	switch {
	case missing <= 0:
		return 0
	case s.refill <= 0:
		return s.per
	default:
		return saturate.Mul(time.Duration((missing-1)/s.refill+1), s.period)
	}
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
	case *limiter.TokenBucket, *limiter.FixedWindow, *limiter.SlidingWindow, *limiter.Unlimited, *limiter.PartitionedLimiter[string, string]:
		return false
	default:
		return true
	}
}

// lends reports whether a limiter is known to lend its permits.
func lends(l any) bool {
	switch l := l.(type) {
	case *limiter.Concurrency, *store.Concurrency, *store.PartitionedConcurrency:
		return true
	case *limiter.PartitionedLimiter[string, string]:
		return lendsForEachKey(l)
	default:
		return false
	}
}

// sizeOf returns a function for the size of a limit, or nil if it is not known. Reconfigure changes the size. l must not
// change afterwards.
func sizeOf(l *Limit) func() size {
	if l.Size != nil {
		return func() size {
			requests, per := l.Size()
			return size{requests: int64(requests), per: per}
		}
	}
	if l.Requests > 0 {
		fixed := size{requests: int64(l.Requests), per: l.Per}
		return func() size { return fixed }
	}
	switch l := l.limiterOf().(type) {
	case interface {
		Options() limiter.TokenBucketOptions
	}:
		return func() size { return sizeOfBucket(l.Options()) }
	case interface {
		Options() limiter.FixedWindowOptions
	}:
		return func() size {
			o := l.Options()
			return size{requests: int64(o.PermitLimit), per: o.Window}
		}
	case interface {
		Options() limiter.SlidingWindowOptions
	}:
		return func() size {
			o := l.Options()
			return size{requests: int64(o.PermitLimit), per: o.Window}
		}
	}
	return nil
}

// sizeOfBucket returns the size of a bucket: its tokens, and the time in which an empty one fills.
func sizeOfBucket(o limiter.TokenBucketOptions) size {
	s := size{requests: int64(o.TokenLimit), refill: int64(o.TokensPerPeriod), period: o.ReplenishmentPeriod}
	s.per = s.full(0)
	return s
}

// sizeNow returns the size of the limiter in force; ok is false if it is not known.
func (l *limit) sizeNow() (s size, ok bool) {
	if l.size == nil {
		return size{}, false
	}
	var err error
	defer func() { ok = err == nil }()
	defer rescue(&err)
	return l.size(), true
}

// toUint32 returns n, or the nearest number that the protocol has room for.
func toUint32(n int64) uint32 { return uint32(min(max(n, 0), math.MaxUint32)) }
