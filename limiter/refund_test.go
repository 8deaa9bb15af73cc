package limiter

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/rate"
)

// A refundable limiter is one whose permits are spent, with limits that change.
type refundable interface {
	Configurable
	Charger
}

type refundLimits struct {
	limit, refill, segments int
	period                  time.Duration
}

// of returns the limits of a kind. A key's bucket shares its state.
func (r refundLimits) of(kind string) rate.Limits {
	switch kind {
	case "FixedWindow":
		return rate.Limits{Kind: rate.FixedWindow, Permits: r.limit, Period: r.period}
	case "SlidingWindow":
		return rate.Limits{Kind: rate.SlidingWindow, Permits: r.limit, Period: r.period * time.Duration(r.segments), Segments: r.segments}
	default:
		return rate.Limits{Kind: rate.TokenBucket, Permits: r.limit, Refill: r.refill, Period: r.period}
	}
}

func newRefundable(kind string, r refundLimits) refundable {
	if kind == "TokenBucket of a key" {
		return weir.Must(FactoryFor[string](r.of(kind))("key")).(refundable)
	}
	return weir.Must(New(r.of(kind))).(refundable)
}

var refundableKinds = []string{"TokenBucket", "TokenBucket of a key", "FixedWindow", "SlidingWindow"}

// A refund never leaves a limiter with more permits than if its own had never been taken, whatever came between: lines,
// refunds, adjustments, charges that give permits back, other limits.
func TestLease_RefundIsNeverTooMuch(t *testing.T) {
	seeds := uint64(1000)
	if testing.Short() {
		seeds = 100
	}
	for _, kind := range refundableKinds {
		for _, kinds := range []int{4, 6, 9} {
			t.Run(fmt.Sprintf("%s, %d kinds of steps", kind, kinds), func(t *testing.T) {
				for seed := range seeds {
					synctest.Test(t, func(t *testing.T) { refundScript(t, rand.New(rand.NewPCG(seed, 1)), kind, kinds) })
				}
			})
		}
	}
}

// As long as no line has passed since the grants, refunds give back everything, in any order and whatever was before.
func TestLease_RefundIsExactAtOnce(t *testing.T) {
	for _, kind := range refundableKinds {
		t.Run(kind, func(t *testing.T) {
			for seed := range uint64(300) {
				synctest.Test(t, func(t *testing.T) {
					r := rand.New(rand.NewPCG(seed, 3))
					l := newRefundable(kind, refundLimits{20, 1 + r.IntN(5), 1 + r.IntN(4), 10})
					for range r.IntN(8) {
						charged(t, l, 3-r.IntN(5))
						if lease, err := l.TryAcquire(t.Context(), 1+r.IntN(4)); err == nil && r.IntN(2) == 0 {
							lease.Refund()
						}
						time.Sleep(time.Duration(r.IntN(12)))
					}
					before := charged(t, l, 0)
					var out []Lease
					for range 6 {
						if n := 1 + r.IntN(5); int64(n) <= charged(t, l, 0) {
							out = append(out, take(t, l, n))
						}
					}
					for _, i := range r.Perm(len(out)) {
						if r.IntN(3) == 0 {
							out[i], _ = out[i].Adjust(r.IntN(8))
						}
						left := charged(t, l, 0)
						out[i].Refund()
						require.Equal(t, left+int64(out[i].Permits()), charged(t, l, 0), "seed %d", seed)
					}
					require.Equal(t, before, charged(t, l, 0), "seed %d", seed)
				})
			}
		})
	}
}

// refundScript does the same to two limiters, but one of them is also asked by chains that come to nothing. kinds is how many
// kinds of steps there are.
func refundScript(t *testing.T, r *rand.Rand, kind string, kinds int) {
	t.Helper()
	draw := func() refundLimits {
		return refundLimits{5 + r.IntN(10), 1 + r.IntN(5), 1 + r.IntN(4), time.Duration(5 + r.IntN(6))}
	}
	limits := draw()
	chained, plain := newRefundable(kind, limits), newRefundable(kind, limits)
	for _, l := range []refundable{chained, plain} {
		_, err := l.TryAcquire(t.Context(), 0) // begins the grid
		require.NoError(t, err)
	}
	var out []Lease
	var steps strings.Builder
	for range 25 {
		step := r.IntN(kinds)
		switch {
		case step == 0:
			time.Sleep(time.Duration(r.IntN(8)))
			fmt.Fprintf(&steps, " sleep->%v", time.Now().Nanosecond())
		case step == 1:
			if n := 1 + r.IntN(4); int64(n) <= min(charged(t, chained, 0), charged(t, plain, 0)) {
				take(t, chained, n)
				take(t, plain, n)
				fmt.Fprint(&steps, " take", n)
			}
		case step == 2:
			if n := 1 + r.IntN(4); int64(n) <= charged(t, chained, 0) {
				out = append(out, take(t, chained, n))
				fmt.Fprint(&steps, " chain", n)
			}
		case step == 3 && len(out) > 0:
			i := r.IntN(len(out))
			out[i].Refund()
			out = append(out[:i], out[i+1:]...)
			fmt.Fprint(&steps, " refund", i)
		case step == 4 && r.IntN(3) == 0:
			limits := draw()
			require.NoError(t, chained.Reconfigure(limits.of(kind)))
			require.NoError(t, plain.Reconfigure(limits.of(kind)))
			fmt.Fprintf(&steps, " change%+v", limits)
		case step == 5 && len(out) > 0:
			i := r.IntN(len(out))
			out[i], _ = out[i].Adjust(r.IntN(6))
			fmt.Fprintf(&steps, " adjust%d:%d", i, out[i].Permits())
		case step > 5:
			n := 5 - r.IntN(15)
			if kind == "SlidingWindow" && charged(t, chained, 0) < 0 {
				n = max(n, 0) // whether a window owes decides which permits go back, and when the others come back
			}
			left := charged(t, plain, n)
			require.LessOrEqual(t, charged(t, chained, n), left, steps.String())
			fmt.Fprint(&steps, " charge", n, "(", left, ")")
		}
		require.LessOrEqual(t, charged(t, chained, 0), charged(t, plain, 0), steps.String())
	}
	for _, l := range out {
		l.Refund()
	}
	require.LessOrEqual(t, charged(t, chained, 0), charged(t, plain, 0), steps.String())
}

// charged charges a limiter, and returns what remains.
func charged(t *testing.T, l Charger, n int) int64 {
	t.Helper()
	level, err := l.Charge(t.Context(), n)
	require.NoError(t, err)
	return level.Remaining
}

// A refund counts as paid once a line has passed, also if the bucket was full on it.
func TestLease_RefundWhileFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := weir.Must(NewTokenBucket(TokenBucketOptions{TokenLimit: 10, TokensPerPeriod: 2, ReplenishmentPeriod: time.Second}))
		for n := range 2 { // the second time as if the first had never been
			l, err := b.TryAcquire(t.Context(), 2+n)
			require.NoError(t, err)
			l, _ = l.Adjust(7)
			time.Sleep(time.Second)
			l.Refund()
			require.Equal(t, int64(10), b.Statistics().AvailablePermits)
			time.Sleep(time.Hour)
		}
	})
}

func TestLease_RefundAfterAnotherWindow(t *testing.T) {
	w := weir.Must(NewFixedWindow(FixedWindowOptions{PermitLimit: 10, Window: time.Second}))
	l, err := w.TryAcquire(t.Context(), 5)
	require.NoError(t, err)
	require.NoError(t, w.Reconfigure(FixedWindowOptions{PermitLimit: 10, Window: time.Hour}))
	l.Refund()
	require.Equal(t, int64(5), w.Statistics().AvailablePermits)
}
