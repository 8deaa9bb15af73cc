package weirrls

import (
	"context"
	"errors"
	"math"

	"google.golang.org/protobuf/types/known/structpb"

	"github.com/weir-go/weir/internal/recovered"
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/limiter/custom"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/rate"
)

// A limit is a Limit that is ready for requests. Its functions are those of the limiter; a limiter that is not partitioned
// ignores the key.
type limit struct {
	Limit
	source   pipeline.Source
	metadata *structpb.Struct

	acquire func(ctx context.Context, key string, n int) (limiter.Lease, error)
	charges func(ctx context.Context, key string, n int) (limiter.Level, error) // nil: it is no Charger
	inForce func(key string) (rate.Limits, error)                               // nil: not known
	// remote reports whether the limiter can take time, as those of a store do. Those of package limiter decide at once.
	remote bool
}

// ask makes the functions those of the limiter, which is not nil.
func (l *limit) ask() {
	switch of := l.Limiter.(type) {
	case nil:
		l.askByKey(l.Partitioned)
	case *limiter.TokenBucket, *limiter.FixedWindow, *limiter.SlidingWindow, *limiter.Calendar:
		l.askAll(of.(limiter.Limiter))
	default:
		l.remote = true
		l.askAll(l.Limiter)
	}
}

func (l *limit) askAll(of limiter.Limiter) {
	l.acquire = func(ctx context.Context, _ string, n int) (limiter.Lease, error) { return of.TryAcquire(ctx, n) }
	if c, ok := of.(limiter.Charger); ok {
		l.charges = func(ctx context.Context, _ string, n int) (limiter.Level, error) { return c.Charge(ctx, n) }
	}
	if s, ok := of.(interface{ Limits() rate.Limits }); ok {
		l.inForce = func(string) (rate.Limits, error) { return s.Limits(), nil }
	}
}

func (l *limit) askByKey(of limiter.Partitioned[string]) {
	_, local := of.(*limiter.PartitionedLimiter[string, string])
	l.remote, l.acquire = !local, of.TryAcquire
	if c, ok := of.(limiter.PartitionedCharger[string]); ok {
		l.charges = c.Charge
	}
	if s, ok := of.(interface {
		Limits(key string) (rate.Limits, error)
	}); ok {
		l.inForce = s.Limits
	}
}

// lends reports whether the limiter is known to lend its permits. A limiter by key is asked for a key that it has not, which
// calls the factory of the program.
func (l *limit) lends() bool {
	if _, ok := l.Partitioned.(*limiter.PartitionedLimiter[string, string]); ok {
		return errors.Is(recovered.Error(func() error {
			_, err := l.charges(context.Background(), "", 0)
			return err
		}), errors.ErrUnsupported)
	}
	if l.inForce == nil {
		return false
	}
	limits, _ := l.inForce("")
	return limits.Kind == rate.Concurrency
}

// reasonTooMany is the reason of the rejection of hits that are more than the limiter can ever grant.
const reasonTooMany = "more hits than the limit"

// tryAcquire asks the limiter for n permits.
func (l *limit) tryAcquire(ctx context.Context, key string, n uint64) (lease limiter.Lease, err error) {
	defer rescue(&err)
	if n > math.MaxInt {
		return custom.Rejected(0, reasonTooMany), nil
	}
	lease, err = l.acquire(ctx, key, int(n))
	if err == nil {
		return lease, nil
	}
	lease.Release() // a limiter of the program can grant permits and return an error
	if errors.Is(err, limiter.ErrPermitCount) {
		return custom.Rejected(0, reasonTooMany), nil
	}
	return limiter.Lease{}, err
}

// charge charges the limiter, which must be a Charger.
func (l *limit) charge(ctx context.Context, key string, n int) (level limiter.Level, err error) {
	defer rescue(&err)
	return l.charges(ctx, key, n)
}

// limits returns the limits in force, for the answer; ok is false if they are not known.
func (l *limit) limits(key string) (limits rate.Limits, ok bool) {
	if l.inForce == nil {
		return limits, false
	}
	var err error
	defer rescue(&err)
	limits, err = l.inForce(key)
	return limits, err == nil && limits.Permits > 0
}
