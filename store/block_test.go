package store_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/storetest"
)

// grants have what all instances were granted, and when.
type grants struct {
	mu    sync.Mutex
	begun time.Time
	all   []grantedAt
}

type grantedAt struct {
	at time.Duration
	n  int64
}

func (g *grants) add(n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.all = append(g.all, grantedAt{time.Since(g.begun), int64(n)})
}

func (g *grants) sum() (sum int64) {
	for _, one := range g.all {
		sum += one.n
	}
	return sum
}

// worst returns the most that was granted above a bucket's limit in any interval.
func (g *grants) worst(limit, refill int64, period time.Duration) (worst int64) {
	var level int64
	var line int64
	for _, one := range g.all {
		now := int64(one.at / period)
		level = max(level-(now-line)*refill, 0) + one.n
		line = now
		worst = max(worst, level-limit)
	}
	return worst
}

// worstWindow is worst for windows of so many periods, which can end with any period.
func (g *grants) worstWindow(limit, periods int64, period time.Duration) (worst int64) {
	in := map[int64]int64{}
	for _, one := range g.all {
		for i := range periods {
			in[int64(one.at/period)+i] += one.n
		}
	}
	for _, n := range in {
		worst = max(worst, n-limit)
	}
	return worst
}

type blockCase struct {
	build func(s *store.Store, how *store.LimiterOptions) (limiter.Limiter, error)
	worst func(g *grants) int64
	least int64 // what is granted at least in 10 s of more demand than there is
}

var blockCases = map[string]blockCase{
	"bucket": {
		func(s *store.Store, how *store.LimiterOptions) (limiter.Limiter, error) {
			return s.TokenBucket("it", bucketOf(200, 10, 20*time.Millisecond, 0), how)
		},
		func(g *grants) int64 { return g.worst(200, 10, 20*time.Millisecond) },
		4500,
	},
	"fixed": {
		func(s *store.Store, how *store.LimiterOptions) (limiter.Limiter, error) {
			return s.FixedWindow("it", limiter.FixedWindowOptions{PermitLimit: 500, Window: time.Second}, how)
		},
		func(g *grants) int64 { return g.worstWindow(500, 1, time.Second) },
		4000,
	},
	"sliding": {
		func(s *store.Store, how *store.LimiterOptions) (limiter.Limiter, error) {
			return s.SlidingWindow("it", limiter.SlidingWindowOptions{PermitLimit: 500, Window: time.Second, SegmentsPerWindow: 10}, how)
		},
		func(g *grants) int64 { return g.worstWindow(500, 10, 100*time.Millisecond) },
		3500,
	},
}

// Instances with different rates, some of which pause, refund, or die with borrowed permits, together never grant more
// than the limit, and not much less if all want more.
func TestBlock_SumNeverExceedsTheLimit(t *testing.T) {
	for name, kind := range blockCases {
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(4) {
				if testing.Short() && seed > 1 {
					break
				}
				inWorld(t, func(t *testing.T, w *world) {
					random := rand.New(rand.NewPCG(seed, 1))
					_ = must(kind.build(w.instance(store.Options{}), nil))(t).(interface {
						Statistics() limiter.Statistics
					}).Statistics() // the grid begins
					g := &grants{begun: time.Now()}
					w.Delay(time.Duration(random.IntN(3)) * time.Millisecond)
					var wg sync.WaitGroup
					for i := range 4 {
						l := must(kind.build(w.instance(store.Options{}), &store.LimiterOptions{Block: 100}))(t)
						own := rand.New(rand.NewPCG(seed, uint64(i)))
						pause := time.Duration(1+own.IntN(4)) * time.Millisecond
						wg.Go(func() { w.use(l, g, own, pause, i) })
					}
					wg.Wait()
					require.LessOrEqual(t, kind.worst(g), int64(0), "seed %d", seed)
					require.GreaterOrEqual(t, g.sum(), kind.least, "seed %d", seed)
				})
			}
		})
	}
}

// use makes calls of one instance for 10 s. The third pauses now and then, and the fourth dies.
func (w *world) use(l limiter.Limiter, g *grants, random *rand.Rand, pause time.Duration, i int) {
	refunding := w.chain(l, rejecting{})
	for begun := time.Now(); time.Since(begun) < 10*time.Second; time.Sleep(pause) {
		if i == 2 && random.IntN(500) == 0 {
			time.Sleep(1500 * time.Millisecond)
		}
		if i == 3 && time.Since(begun) > 5*time.Second {
			return
		}
		ask := l
		if random.IntN(10) == 0 {
			ask = refunding // takes, and gives back
		}
		lease, err := ask.TryAcquire(w.ctx, 1+random.IntN(3))
		if err != nil {
			w.Error(err)
			return
		}
		g.add(lease.Permits())
	}
}

// A block that comes while the definition is loaded again is not given back: a store may not take it.
func TestBlock_NoneIsLost(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		const limit, instances, callers = 20_000, 8, 8
		w.Delay(300 * time.Microsecond)
		var granted atomic.Int64
		var all sync.WaitGroup
		for range instances {
			l := w.bucket(limit, 1, time.Hour, 0, &store.LimiterOptions{Block: 100})
			for range callers {
				all.Go(func() {
					for w.try(l, 1).Acquired() {
						granted.Add(1)
						time.Sleep(50 * time.Microsecond)
					}
				})
			}
		}
		all.Wait()
		require.EqualValues(t, limit, granted.Load())
	})
}

func TestBlock_SizeFollowsTheRate(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		l := w.bucket(1_000_000, 1, time.Hour, 0, &store.LimiterOptions{Block: 100})
		elsewhere := w.bucket(1_000_000, 1, time.Hour, 0, nil)
		run := func(n int, every time.Duration) (calls int) {
			before := w.Calls("Decide")
			for range n {
				w.granted(l, 1)
				time.Sleep(every)
			}
			return w.Calls("Decide") - before
		}
		require.LessOrEqual(t, run(2000, time.Millisecond), 45, "2000 at 1000/s: blocks of 100 and a few small ones")
		require.LessOrEqual(t, run(2000, time.Millisecond), 25)
		w.pass(10 * time.Second)
		run(20, 2*time.Second)
		w.pass(900 * time.Millisecond)
		run(1, 0)
		missing := 1_000_000 - elsewhere.Statistics().AvailablePermits
		require.LessOrEqual(t, missing-4021, int64(2), "at a permit every 2 s it has no block")
	})
}

func TestBlock_AtMostAQuarterOfTheLimit(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		l := w.bucket(40, 1, time.Hour, 0, &store.LimiterOptions{Block: 1000})
		elsewhere := w.bucket(40, 1, time.Hour, 0, nil)
		for i := range int64(20) {
			w.granted(l, 1)
			require.LessOrEqual(t, 40-(i+1)-elsewhere.Statistics().AvailablePermits, int64(10))
		}
	})
}

// borrowing returns a limiter that has borrowed some permits of an hour's 400 and has granted so many, and one that borrows none.
func (w *world) borrowing(block int, used int64) (l, elsewhere *store.Limiter) {
	window := limiter.FixedWindowOptions{PermitLimit: 400, Window: time.Hour}
	l = must(w.instance(store.Options{}).FixedWindow("it", window, &store.LimiterOptions{Block: block}))(w.T)
	elsewhere = must(w.instance(store.Options{}).FixedWindow("it", window, nil))(w.T)
	for range used {
		w.granted(l, 1)
	}
	require.Less(w, elsewhere.Statistics().AvailablePermits, 400-used)
	return l, elsewhere
}

// An instance returns what it has borrowed of a window within a second, also if it asks the store meanwhile for more than a block.
func TestBlock_IdleDelaysOthers(t *testing.T) {
	for _, large := range []int64{0, 20} {
		inWorld(t, func(t *testing.T, w *world) {
			l, elsewhere := w.borrowing(10, 130)
			for range 6 {
				w.pass(180 * time.Millisecond)
				w.granted(l, int(large))
			}
			require.Equal(t, 400-130-6*large, elsewhere.Statistics().AvailablePermits)
			calls := w.Calls()
			w.pass(59 * time.Minute)
			require.Equal(t, calls, w.Calls(), "an idle limiter costs nothing")
		})
	}
}

// A store whose clock steps into another window has other permits than the borrowed ones.
func TestBlock_StepIntoAnotherWindow(t *testing.T) {
	for _, late := range []bool{false, true} { // a block is asked for before the step and comes after another answer
		t.Run(fmt.Sprint(late), subtest(func(t *testing.T, w *world) {
			l, _ := w.borrowing(10, 130)
			var granted atomic.Int64
			if late {
				var answers atomic.Int64
				w.hook(nil, func(string) error {
					if answers.Add(1) == 1 {
						time.Sleep(50 * time.Millisecond)
					}
					return nil
				})
				go func() {
					for range 12 {
						granted.Add(int64(w.try(l, 1).Permits()))
					}
				}()
				w.pass(10 * time.Millisecond)
			}
			before := granted.Load()
			w.Step(time.Hour)
			if late {
				w.charged(l, 395, 5)
			} else {
				w.granted(l, 395)
			}
			w.pass(100 * time.Millisecond)
			for w.try(l, 1).Acquired() {
				granted.Add(1)
			}
			require.EqualValues(t, 5, granted.Load()-before)
		}))
	}
}

// If a line passes within a round trip, no block arrives in time, and each caller gets its permits from the store.
func TestBlock_FarStore(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		window := limiter.FixedWindowOptions{PermitLimit: 100, Window: 20 * time.Millisecond}
		l := must(w.instance(store.Options{}).FixedWindow("it", window, &store.LimiterOptions{Block: 10}))(t)
		w.Delay(30 * time.Millisecond)
		for range 20 {
			require.LessOrEqual(t, timed(func() { w.granted(l, 1) }), 100*time.Millisecond)
		}
	})
}

// Close returns what is borrowed, also if a Store is closed while one of its limiters is.
func TestBlock_ReturnedByClose(t *testing.T) {
	const keys = 100
	for name, closing := range map[string]func(s *store.Store, p *store.Partitioned){
		"limiter": func(_ *store.Store, p *store.Partitioned) { _ = p.Close() },
		"store":   func(s *store.Store, _ *store.Partitioned) { _ = s.Close() },
		"both": func(s *store.Store, p *store.Partitioned) {
			go func() { _ = p.Close() }()
			for store.KeyStates(p) == keys {
				runtime.Gosched()
			}
			_ = s.Close()
		},
	} {
		t.Run(name, subtest(func(t *testing.T, w *world) {
			s, o := w.instance(store.Options{}), bucketOf(400, 1, time.Hour, 0)
			p := must(s.PartitionedTokenBucket("it", o, &store.LimiterOptions{Block: 100}))(t)
			for i := range keys * 4 { // the third call for a key borrows
				_ = must(p.TryAcquire(w.ctx, fmt.Sprint(i%keys), 1))(t)
			}
			closing(s, p)
			synctest.Wait()
			elsewhere := must(w.instance(store.Options{}).PartitionedTokenBucket("it", o, nil))(t)
			for key := range keys {
				require.EqualValues(t, 396, must(elsewhere.Statistics(fmt.Sprint(key)))(t).AvailablePermits)
			}
		}))
	}
}

// Blocks are returned when the limits change, at this instance and at others that learn of it.
func TestBlock_ReturnedByReconfigure(t *testing.T) {
	for _, to := range []limiter.TokenBucketOptions{
		bucketOf(50, 1, time.Hour, 0), bucketOf(1000, 1, time.Hour, 0), bucketOf(400, 100, time.Second, 0),
	} {
		inWorld(t, func(t *testing.T, w *world) {
			how := &store.LimiterOptions{Block: 100}
			a := w.bucket(400, 1, time.Hour, 0, how)
			b := w.bucket(400, 1, time.Hour, 0, how)
			for range 30 {
				w.granted(a, 1)
				w.granted(b, 1)
			}
			require.NoError(t, a.Reconfigure(to))
			synctest.Wait()
			got := 0
			for _, l := range []limiter.Limiter{a, b, a, b} {
				for w.try(l, 1).Acquired() {
					got++
				}
			}
			require.LessOrEqual(t, got, max(to.TokenLimit-60, 0), "%+v", to)
			if to.TokenLimit == 1000 {
				require.GreaterOrEqual(t, got, 880, "%+v", to)
			}
		})
	}
}

func TestBlock_Refund(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		l := w.bucket(400, 1, time.Hour, 0, &store.LimiterOptions{Block: 100})
		for range 20 {
			w.granted(l, 1)
		}
		calls := w.Calls("Decide")
		for range 50 {
			w.rejected(w.chain(l, rejecting{}), 1)
		}
		require.Equal(t, calls, w.Calls("Decide"))
		w.rejected(w.chain(l, rejectingAfter(func() { w.pass(2 * time.Second) })), 1)
		require.Len(t, w.events.of(store.EventRefundLost), 1)
	})
}

func TestBlock_ClockStep(t *testing.T) {
	for _, step := range []time.Duration{-time.Hour, time.Hour} {
		inWorld(t, func(t *testing.T, w *world) {
			l := w.bucket(400, 10, time.Second, 0, &store.LimiterOptions{Block: 100})
			got := 0
			for i := range 4000 {
				if i == 1000 {
					w.Step(step)
				}
				got += w.try(l, 1).Permits()
				time.Sleep(10 * time.Millisecond)
			}
			most := 400 + 10*41
			if step > 0 {
				most += 400 // by the larger reading it has filled up once more
			}
			require.LessOrEqual(t, got, most)
			require.GreaterOrEqual(t, got, 400+10*38)
		})
	}
}

func TestBlock_NoAllocation(t *testing.T) {
	s := newStore(t, storetest.NewMemory(), store.Options{})
	l := must(s.TokenBucket("it", bucketOf(math.MaxInt32, 1, time.Hour, 0), &store.LimiterOptions{Block: 1 << 20}))(t)
	p := must(s.PartitionedTokenBucket("them", bucketOf(math.MaxInt32, 1, time.Hour, 0), &store.LimiterOptions{Block: 1 << 20}))(t)
	for range 1 << 12 {
		_ = must(l.TryAcquire(t.Context(), 1<<8))(t)
		_ = must(p.TryAcquire(t.Context(), "key", 1<<8))(t)
	}
	ctx := t.Context()
	require.LessOrEqual(t, testing.AllocsPerRun(1000, func() { _, _ = l.TryAcquire(ctx, 1) }), 0.1)
	require.LessOrEqual(t, testing.AllocsPerRun(1000, func() { _, _ = p.TryAcquire(ctx, "key", 1) }), 0.1)
}

// A waiter that needs more than the store has is served when the rest of a block is back there.
func TestBlock_ReturnServesAWaiter(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		window := limiter.FixedWindowOptions{PermitLimit: 1000, Window: time.Hour, QueueLimit: 1000}
		l := must(w.instance(store.Options{}).FixedWindow("it", window, &store.LimiterOptions{Block: 10, CacheRejections: true}))(t)
		elsewhere := must(w.instance(store.Options{}).FixedWindow("it", window, nil))(t)
		for range 25 {
			w.granted(l, 1)
		}
		left := elsewhere.Statistics().AvailablePermits
		require.Less(t, left, int64(975), "the rest is borrowed")
		a := w.acquire(l, int(left)+1)
		w.waits(a)
		w.pass(1100 * time.Millisecond)
		w.served(a)
	})
}
