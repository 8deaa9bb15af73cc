package store_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/limiter/custom"
	"github.com/weir-go/weir/limiter/limitertest"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/backend"
)

type rejecting struct{}

func (rejecting) TryAcquire(context.Context, int) (limiter.Lease, error) {
	return custom.Rejected(0, "no"), nil
}

func (rejecting) Acquire(context.Context, int) (limiter.Lease, error) {
	return custom.Rejected(0, "no"), nil
}

func (w *world) chain(all ...limiter.Limiter) limiter.Limiter {
	return must(limiter.Chain(all...))(w.T)
}

func TestChain_LostRefund(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		l := w.bucket(10, 1, time.Hour, 0, nil)
		w.granted(l, 0)
		lost := errors.New("cut")
		w.rejected(w.chain(l, rejectingAfter(func() { w.hooked.Fail(lost) })), 4)
		events := w.events.of(store.EventRefundLost)
		require.Len(t, events, 1)
		require.Equal(t, "bucket", events[0].Limiter)
		require.EqualValues(t, 4, events[0].Permits)
		require.ErrorIs(t, events[0].Err, lost)
	})
}

type rejectingAfter func()

func (f rejectingAfter) TryAcquire(ctx context.Context, n int) (limiter.Lease, error) {
	f()
	return rejecting{}.TryAcquire(ctx, n)
}

func (f rejectingAfter) Acquire(ctx context.Context, n int) (limiter.Lease, error) {
	return f.TryAcquire(ctx, n)
}

func TestLease_Adjust(t *testing.T) {
	for name, how := range map[string]*store.LimiterOptions{"usual": nil, "blocks": {Block: 8}} {
		t.Run(name, subtest(func(t *testing.T, w *world) {
			l := w.bucket(100, 1, time.Hour, 0, how)
			elsewhere := w.bucket(100, 1, time.Hour, 0, nil)
			left := func(want int64) {
				t.Helper()
				w.pass(2 * time.Second)
				require.Equal(t, want, elsewhere.Statistics().AvailablePermits)
			}
			down, ok := w.granted(l, 10).Adjust(3)
			require.True(t, ok)
			require.Equal(t, 3, down.Permits())
			left(97)
			up, ok := w.granted(l, 10).Adjust(30)
			require.True(t, ok)
			require.Equal(t, 30, up.Permits())
			left(67)
			w.granted(l, 10).Adjust(200) // it owes 133
			left(0)
			d, _ := w.rejected(elsewhere, 1).RetryAfter()
			require.InDelta(t, 134*time.Hour, d, float64(time.Hour))
		}))
	}
}

// In the end, the store has taken what the lease costs, in whatever order it was adjusted and refunded while charges were under
// way. If a charge was lost it has less or, if only the answer was lost, more by as much.
func TestGrant_EndsAtItsCost(t *testing.T) {
	for _, k := range spending {
		t.Run(k.String(), func(t *testing.T) {
			for seed := range uint64(100) {
				inWorld(t, func(t *testing.T, w *world) {
					r := rand.New(rand.NewPCG(seed, uint64(k)))
					b := &losing{hooked: w.hooked, random: rand.New(rand.NewPCG(seed, 1)), one: r.IntN(3) * 2}
					s := newStore(t, b, store.Options{FailureThreshold: 1000})
					l := build(t, s, k, limitertest.Limits{Permits: 1000, Period: 1000 * time.Hour, TokensPerPeriod: 1, Segments: 10}, nil)
					lease, cost := w.granted(l, 10), 10
					w.Delay(time.Duration(r.IntN(20)) * time.Millisecond)
					for range r.IntN(8) {
						cost = r.IntN(40)
						lease, _ = lease.Adjust(cost)
						w.pass(time.Duration(r.IntN(30)) * time.Millisecond)
					}
					if r.IntN(2) == 0 {
						lease.Refund()
						cost = 0
					}
					w.pass(time.Minute)
					taken := int(1000 - l.Statistics().AvailablePermits)
					require.GreaterOrEqual(t, taken, cost-b.lost, "seed %d", seed)
					require.LessOrEqual(t, taken, cost+b.unknown, "seed %d", seed)
				})
			}
		})
	}
}

// A losing backend loses one in so many round trips with charges, or only their answers.
type losing struct {
	*hooked
	mu            sync.Mutex
	random        *rand.Rand
	one           int // 0: none
	lost, unknown int // permits
}

func (b *losing) Decide(ctx context.Context, batches []*backend.Batch) error {
	charged, refunded := 0, 0
	for _, batch := range batches {
		for _, r := range batch.Requests {
			switch r.Op {
			case backend.OpCharge:
				charged += int(r.Max)
			case backend.OpRefund:
				refunded += int(r.Max)
			}
		}
	}
	b.mu.Lock()
	lose := charged > 0 && b.one > 0 && b.random.IntN(b.one) == 0
	before := lose && b.random.IntN(2) == 0
	switch {
	case before:
		b.lost += charged
		b.unknown += refunded
	case lose:
		b.unknown += charged
	}
	b.mu.Unlock()
	if before {
		return errDead
	}
	err := b.hooked.Decide(ctx, batches)
	if lose {
		return errDead
	}
	return err
}

// A store that never accepts the definition that it has returned is not asked forever to take a refund.
func TestGrant_RefundHasAnEnd(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		b := &outdating{hooked: w.hooked}
		s := newStore(t, b, store.Options{NoListen: true, OnEvent: w.events.add})
		l := must(s.TokenBucket("bucket", bucketOf(10, 1, time.Hour, 0), nil))(t)
		lease := w.granted(l, 4)
		b.outdated.Store(true)
		lease.Adjust(0)
		w.pass(4900 * time.Millisecond)
		require.Empty(t, w.events.of(store.EventRefundLost))
		w.pass(200 * time.Millisecond) // ten times CallTimeout
		lost := w.events.of(store.EventRefundLost)
		require.Len(t, lost, 1)
		require.EqualValues(t, 4, lost[0].Permits)
		require.ErrorContains(t, lost[0].Err, "reconfigured too often")
		calls := w.Calls()
		w.pass(time.Minute)
		require.Equal(t, calls, w.Calls())
	})
}

// outdating answers, if outdated, that the newest definition is outdated.
type outdating struct {
	*hooked
	outdated atomic.Bool
}

func (o *outdating) Decide(ctx context.Context, batches []*backend.Batch) error {
	err := o.hooked.Decide(ctx, batches)
	for _, b := range batches {
		if o.outdated.Load() {
			b.Outcome = backend.OutdatedDefinition
			b.Version = b.Definition.Version
		}
	}
	return err
}
