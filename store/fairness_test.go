package store_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/store"
)

// A fleet is several instances whose callers wait for the same permits all the time.
type fleet struct {
	w       *world
	permits atomic.Int64 // that were granted
	each    []atomic.Int64
	callers sync.WaitGroup
}

// fleet runs instances until so many permits were granted, and returns what each was granted and how long that
// took. waiters is how many callers each instance has; hold is for how long each keeps a permit.
func (w *world) fleet(all []limiter.Limiter, waiters []int, permits int64, hold time.Duration) (*fleet, time.Duration) {
	f := &fleet{w: w, each: make([]atomic.Int64, len(all))}
	ctx, stop := context.WithCancel(w.ctx)
	begun := time.Now()
	var took time.Duration
	for i, l := range all {
		for range waiters[i] {
			f.callers.Go(func() {
				for ctx.Err() == nil {
					lease, err := l.Acquire(ctx, 1)
					if err != nil || !lease.Acquired() {
						continue
					}
					switch n := f.permits.Add(1); {
					case n < permits:
						f.each[i].Add(1)
					case n == permits:
						f.each[i].Add(1)
						took = time.Since(begun)
						stop()
					}
					if hold > 0 {
						time.Sleep(hold)
					}
					lease.Release()
				}
			})
		}
	}
	f.callers.Wait()
	stop()
	return f, took
}

func (f *fleet) shares() (shares []int64) {
	for i := range f.each {
		shares = append(shares, f.each[i].Load())
	}
	return shares
}

// Over some hundred permits for each, each instance with enough callers gets at least half its even share, and the limit is used up.
func TestFairness_BetweenInstances(t *testing.T) {
	bucket := func(limit, refill int, period time.Duration) any { return bucketOf(limit, refill, period, 100) }
	fixed := func(limit int, window time.Duration) any {
		return limiter.FixedWindowOptions{PermitLimit: limit, Window: window, QueueLimit: 100}
	}
	sliding := func(limit int, window time.Duration, segments int) any {
		return limiter.SlidingWindowOptions{PermitLimit: limit, Window: window, SegmentsPerWindow: segments, QueueLimit: 100}
	}
	seats := func(limit int) any { return limiter.ConcurrencyOptions{PermitLimit: limit, QueueLimit: 100} }
	for _, test := range []struct {
		name    string
		o       any
		how     *store.LimiterOptions
		rate    float64 // permits a second at the most
		part    float64 // of the rate, that has to be reached
		in      store.Options
		burst   int    // that is there in the beginning
		callers string // of unlike instances; one caller alone cannot use half of what comes at once
	}{
		{"bucket of 1", bucket(1, 1, 100*time.Millisecond), nil, 10, 0.99, store.Options{}, 0, ""},
		{"bucket of 1 that is slow", bucket(1, 1, 20*time.Second), nil, 0.05, 0.99, store.Options{}, 0, ""},
		{"bucket of 100", bucket(100, 1, 10*time.Millisecond), nil, 100, 0.95, store.Options{}, 100, ""},
		{"bucket by 20", bucket(20, 20, 100*time.Millisecond), nil, 200, 0.95, store.Options{}, 0, "10 to 100"},
		{"bucket, cached", bucket(5, 5, 50*time.Millisecond), caching, 100, 0.95, store.Options{}, 0, "10 to 100"},
		{"bucket, blocks", bucket(20, 20, 100*time.Millisecond), &store.LimiterOptions{Block: 10}, 200, 0.9, store.Options{}, 0, "10 to 100"},
		{"bucket of 1, blocks", bucket(1, 1, 20*time.Millisecond), &store.LimiterOptions{Block: 10}, 50, 0.9, store.Options{}, 0, ""},
		{"window of 1", fixed(1, 100*time.Millisecond), nil, 10, 0.99, store.Options{}, 0, ""},
		{"window of 20", fixed(20, 100*time.Millisecond), nil, 200, 0.95, store.Options{}, 0, "10 to 100"},
		{"window of 100", fixed(100, time.Second), nil, 100, 0.9, store.Options{}, 100, "30 to 100"},
		{"sliding window of 1", sliding(1, 100*time.Millisecond, 2), nil, 10, 0.6, store.Options{}, 0, ""},
		{"sliding window of 20", sliding(20, 200*time.Millisecond, 10), nil, 100, 0.85, store.Options{}, 0, "10 to 100"},
		{"one seat", seats(1), nil, 200, 0.4, store.Options{}, 0, ""},
		{"four seats", seats(4), nil, 800, 0.3, store.Options{}, 0, "10"},
		{"one seat, polled", seats(1), nil, 200, 0.05, store.Options{NoListen: true}, 0, ""},
	} {
		for _, of := range []struct {
			instances int
			callers   string
			distance  time.Duration
		}{{2, "1 to 30", 200 * time.Microsecond}, {3, "10", time.Millisecond}, {8, "10", 8 * time.Millisecond}, {8, "1 to 30", time.Millisecond}} {
			instances, callers := of.instances, of.callers
			if test.callers != "" && callers == "1 to 30" {
				callers = test.callers
			}
			if instances == 8 && test.in.NoListen || instances > 2 && testing.Short() {
				continue // where seats are polled for, luck decides too much
			}
			t.Run(fmt.Sprintf("%s/%d instances/%s callers", test.name, instances, callers), subtest(func(t *testing.T, w *world) {
				hold := time.Duration(0)
				if _, ok := test.o.(limiter.ConcurrencyOptions); ok {
					hold, of.distance = 5*time.Millisecond, time.Millisecond
				}
				w.Delay(of.distance)
				var all []limiter.Limiter
				var waiters []int
				for i := range instances {
					s := w.instance(test.in)
					switch o := test.o.(type) {
					case limiter.TokenBucketOptions:
						all = append(all, must(s.TokenBucket("it", o, test.how))(t))
					case limiter.FixedWindowOptions:
						all = append(all, must(s.FixedWindow("it", o, test.how))(t))
					case limiter.SlidingWindowOptions:
						all = append(all, must(s.SlidingWindow("it", o, test.how))(t))
					case limiter.ConcurrencyOptions:
						all = append(all, must(s.Concurrency("it", o, test.how))(t))
					}
					n := map[string]int{"1 to 30": 1, "10": 10, "10 to 100": 10, "30 to 100": 30}[callers]
					if i > 0 {
						n = map[string]int{"1 to 30": 30, "10": 10, "10 to 100": 100, "30 to 100": 100}[callers]
					}
					waiters = append(waiters, n)
				}
				permits := int64(250 * max(instances, 4))
				if test.burst > 0 {
					permits *= 4 // who gets how many of a hundred at once is luck, which has to even out
				}
				f, took := w.fleet(all, waiters, permits, hold)
				shares := f.shares()
				rate := float64(permits-int64(test.burst)) / took.Seconds()
				for _, n := range shares {
					if n < permits/int64(2*instances) {
						t.Errorf("shares %v", shares)
						break
					}
				}
				t.Logf("shares %v, %.1f/s of %.1f, %d calls", shares, rate, test.rate, w.Calls())
				if rate < test.part*test.rate {
					t.Errorf("%.1f permits a second", rate)
				}
				require.LessOrEqual(t, rate, test.rate*1.1+1)
			}))
		}
	}
}

// An instance that comes gets its share, and the share of one that goes is left to the others.
func TestFairness_InstancesComeAndGo(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		const instances, callers, phase, each = 3, 20, 5 * time.Second, 1000 // permits in a phase
		w.Delay(time.Millisecond)
		var got [instances]atomic.Int64
		var all sync.WaitGroup
		start := func(i int) *store.Store {
			s := w.instance(store.Options{})
			l := must(s.TokenBucket("it", bucketOf(20, 20, 100*time.Millisecond, 100), nil))(t)
			for range callers {
				all.Go(func() {
					for {
						lease, err := l.Acquire(w.ctx, 1)
						if err != nil || lease.Reason() == limiter.ReasonClosed {
							return
						}
						got[i].Add(int64(lease.Permits()))
					}
				})
			}
			return s
		}
		during := func(sharing ...int) {
			t.Helper()
			var from [instances]int64
			for i := range from {
				from[i] = got[i].Load()
			}
			w.pass(phase)
			sum := int64(0)
			for _, i := range sharing {
				n := got[i].Load() - from[i]
				require.GreaterOrEqual(t, n, int64(each/len(sharing)/2), "instance %d of %v", i, sharing)
				sum += n
			}
			require.InDelta(t, each, sum, each/20)
		}
		first := start(0)
		during(0)
		second := start(1)
		during(0, 1)
		require.NoError(t, first.Close())
		during(1)
		third := start(2)
		during(1, 2)
		require.NoError(t, second.Close())
		require.NoError(t, third.Close())
		all.Wait()
	})
}

// withRival returns a limiter that knows a rival, at the beginning of a window of a second with 100 permits.
func (w *world) withRival(queue int, order limiter.QueueOrder) (l, rival *store.Limiter) {
	w.Helper()
	o := limiter.FixedWindowOptions{PermitLimit: 100, Window: time.Second, QueueLimit: queue, QueueOrder: order}
	l = must(w.instance(store.Options{}).FixedWindow("it", o, nil))(w.T)
	rival = must(w.instance(store.Options{}).FixedWindow("it", o, nil))(w.T)
	w.granted(rival, 100)
	a := w.acquire(l, 1)
	w.waits(a)
	w.pass(2 * time.Second)
	w.served(a)
	w.granted(rival, 1)
	w.granted(l, 1)
	return l, rival
}

// A caller that finds permits is not rejected because of rivals.
func TestFairness_RejectsNoCaller(t *testing.T) {
	for _, order := range []limiter.QueueOrder{limiter.OldestFirst, limiter.NewestFirst} {
		t.Run(order.String(), subtest(func(t *testing.T, w *world) {
			w.Delay(time.Millisecond)
			l, _ := w.withRival(5, order)
			large := w.acquire(l, 10)
			var all []*waiting
			for range 40 {
				all = append(all, w.acquire(l, 1))
			}
			w.pass(time.Second)
			w.served(large)
			for _, a := range all {
				w.served(a)
			}
		}))
	}
}

// A caller that finds permits is not rejected either if there is no queue any more when it is its turn.
func TestFairness_QueueEnds(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.Delay(time.Millisecond)
		l, _ := w.withRival(5, limiter.OldestFirst)
		var ended sync.WaitGroup
		var end sync.Once
		w.SetShards(func(string, string) string { // is called when the turn is looked at
			end.Do(func() {
				ended.Go(func() {
					_ = l.ReconfigureLater(limiter.FixedWindowOptions{PermitLimit: 100, Window: time.Second})
				})
				for l.Limits().QueueLimit > 0 {
					runtime.Gosched()
				}
			})
			return ""
		})
		a := w.acquire(l, 1)
		w.pass(10 * time.Millisecond)
		w.served(a)
		ended.Wait()
	})
}

// A caller that waits for many permits is not starved by callers that want one.
func TestFairness_KeepsTheQueueOrder(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.Delay(time.Millisecond)
		l := w.bucket(10, 1, 100*time.Millisecond, 20, nil)
		rival := w.bucket(10, 1, 100*time.Millisecond, 20, nil)
		w.granted(rival, 10)
		head := w.acquire(l, 10)
		for i := range 400 {
			w.pass(10 * time.Millisecond)
			if i%100 == 50 {
				w.try(rival, 1)
			}
			if !head.done.Load() {
				w.rejected(l, 1)
			}
		}
		w.served(head)
		require.Less(t, head.took, 3*time.Second)
	})
}

// If there is enough for all, no caller waits because of rivals.
func TestFairness_EnoughForAll(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.Delay(time.Millisecond)
		l, other := w.withRival(100, limiter.OldestFirst)
		for window := range 12 {
			w.pass(time.Second)
			w.granted(other, 1)
			var all []*waiting
			for range 60 {
				all = append(all, w.acquire(l, 1))
			}
			w.pass(50 * time.Millisecond)
			if window < 6 {
				continue // a caller has just been rejected
			}
			for _, a := range all {
				require.LessOrEqual(t, w.served(a).Permits(), 1)
				require.Less(t, a.took, 10*time.Millisecond)
			}
		}
	})
}

// A turn that was chosen for one waiter delays no other caller.
func TestFairness_StepBackEndsWithItsWaiter(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		l := w.bucket(10, 1, 100*time.Millisecond, 10, nil)
		w.granted(l, 10)
		for range 20 {
			a := w.acquire(l, 5)
			w.pass(600 * time.Millisecond)
			w.served(a)
			a = w.acquire(l, 5)
			w.pass(250 * time.Millisecond)
			a.cancel()
			synctest.Wait()
			b := w.acquire(l, 1)
			w.pass(time.Millisecond)
			w.served(b)
		}
	})
}

// Callers that wait because of rivals are answered as soon as the store counts as away.
func TestFairness_OutageDuringARest(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.Delay(time.Millisecond)
		l, _ := w.withRival(100, limiter.OldestFirst)
		var all []*waiting
		for range 80 {
			all = append(all, w.acquire(l, 1))
		}
		w.pass(5 * time.Millisecond)
		w.waits(all[79])
		w.hook(func(string) error { return errors.New("dead") }, nil)
		for range 3 {
			w.pass(time.Millisecond)
			_ = must(l.TryAcquire(w.ctx, 1))(t)
		}
		w.pass(100 * time.Millisecond)
		for _, a := range all {
			require.True(t, a.done.Load())
		}
		require.Equal(t, limiter.ReasonUnavailable, all[79].lease.Reason())
	})
}

// Instances far from the store, whose callers wait all the time, use up the limit and get about equal shares.
func TestFairness_FarStores(t *testing.T) {
	const warmup, long, rate = 2 * time.Second, 100 * time.Second, 100
	far := map[string]func(*store.Store) (limiter.Limiter, error){
		"bucket of 20": func(s *store.Store) (limiter.Limiter, error) {
			return s.TokenBucket("it", bucketOf(20, 1, 10*time.Millisecond, 100), nil)
		},
		"bucket of 100": func(s *store.Store) (limiter.Limiter, error) {
			return s.TokenBucket("it", bucketOf(100, 1, 10*time.Millisecond, 100), nil)
		},
		"window": func(s *store.Store) (limiter.Limiter, error) {
			return s.FixedWindow("it", limiter.FixedWindowOptions{PermitLimit: 100, Window: time.Second, QueueLimit: 100}, nil)
		},
		"sliding window": func(s *store.Store) (limiter.Limiter, error) {
			return s.SlidingWindow("it", limiter.SlidingWindowOptions{PermitLimit: 100, Window: time.Second, SegmentsPerWindow: 10, QueueLimit: 100}, nil)
		},
	}
	run := func(t *testing.T, w *world, build func(*store.Store) (limiter.Limiter, error), instances int) (sum, least, most int64) {
		ctx, stop := context.WithCancel(w.ctx)
		each := make([]atomic.Int64, instances)
		var callers sync.WaitGroup
		for i := range instances {
			l := must(build(w.instance(store.Options{})))(t)
			for range 16 {
				callers.Go(func() {
					for ctx.Err() == nil {
						if lease, err := l.Acquire(ctx, 1); err == nil && lease.Acquired() {
							each[i].Add(1)
						}
					}
				})
			}
			time.Sleep(7 * time.Millisecond)
		}
		time.Sleep(warmup)
		f := &fleet{each: each}
		from := f.shares()
		time.Sleep(long)
		least = math.MaxInt64
		for i, n := range f.shares() {
			n -= from[i]
			sum, least, most = sum+n, min(least, n), max(most, n)
		}
		stop()
		callers.Wait()
		return sum, least, most
	}
	for name, build := range far {
		for _, instances := range []int{1, 2, 3, 8} {
			for _, distance := range []time.Duration{30 * time.Millisecond, 60 * time.Millisecond, 100 * time.Millisecond} {
				if testing.Short() && (distance < 100*time.Millisecond || instances%2 == 0) {
					continue // these are enough under the race detector
				}
				t.Run(fmt.Sprintf("%s/%d instances/%v", name, instances, distance), subtest(func(t *testing.T, w *world) {
					w.Delay(distance)
					sum, least, most := run(t, w, build, instances)
					even := float64(sum) / float64(instances)
					t.Logf("%d of %v, shares of %.2f to %.2f, %d calls", sum, rate*long.Seconds(), float64(least)/even, float64(most)/even, w.Calls())
					if float64(sum) < 0.95*rate*long.Seconds() {
						t.Errorf("%d granted", sum)
					}
					require.LessOrEqual(t, sum, int64(rate*(long+time.Second).Seconds()))
					if least < sum/int64(instances)/2 || most > sum/int64(instances)*3/2 {
						t.Errorf("shares of %d to %d", least, most)
					}
				}))
			}
		}
	}
}
