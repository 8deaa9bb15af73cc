package limiter_test

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/limiter/custom"
	"github.com/weir-go/weir/limiter/limitertest"
)

const (
	stressWorkers = 16
	stressChanges = 300
	stressLow     = 3 // the limits that Reconfigure goes between
	stressHigh    = 7
)

// A stress is a limiter with many callers in real time, and what they got.
type stress struct {
	l                              limiter.Limiter
	held, most                     atomic.Int64
	permits, successes, rejections atomic.Int64
	wrong                          atomic.Value
}

func stressLimits(permits int) limitertest.Limits {
	return limitertest.Limits{
		Permits: permits, Period: 4 * time.Millisecond, TokensPerPeriod: 2, Segments: 4, QueueLimit: 40,
	}
}

// work asks for permits in every way until stop.
func (s *stress) work(r *rand.Rand, stop <-chan struct{}) {
	for {
		select {
		case <-stop:
			return
		default:
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Duration(r.IntN(3000))*time.Microsecond)
		ask := s.l.Acquire
		if r.IntN(3) == 0 {
			ask = s.l.TryAcquire
		}
		lease, err := ask(ctx, r.IntN(stressLow+1))
		s.count(lease, err, ctx)
		if lease.Acquired() {
			if r.IntN(4) == 0 {
				time.Sleep(time.Duration(r.IntN(200)) * time.Microsecond)
			}
			s.held.Add(-int64(lease.Permits()))
			lease.Release()
			lease.Release()
		}
		cancel()
		if errors.Is(err, limiter.ErrClosed) {
			return
		}
	}
}

func (s *stress) count(lease limiter.Lease, err error, ctx context.Context) {
	switch {
	case err == nil && lease.Acquired():
		now := s.held.Add(int64(lease.Permits()))
		for most := s.most.Load(); now > most && !s.most.CompareAndSwap(most, now); most = s.most.Load() {
		}
		s.permits.Add(int64(lease.Permits()))
		s.successes.Add(1)
	case err == nil:
		if lease.Reason() != limiter.ReasonClosed {
			s.rejections.Add(1)
		}
	case lease.Acquired():
		s.wrong.Store("a lease came with an error")
	case errors.Is(err, limiter.ErrClosed), errors.Is(err, ctx.Err()):
	default:
		s.wrong.Store(err.Error())
	}
}

// run works for stressChanges while the limits go up and down and the order changes.
func (s *stress) run(t *testing.T, meanwhile func(i int)) (elapsed time.Duration) {
	t.Helper()
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for i := range stressWorkers {
		wg.Go(func() { s.work(rand.New(rand.NewPCG(uint64(i), 7)), stop) })
	}
	begin := time.Now()
	for i := range stressChanges {
		meanwhile(i)
		time.Sleep(200 * time.Microsecond)
	}
	close(stop)
	done := make(chan struct{})
	go func() { wg.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(time.Minute):
		t.Fatal("a caller waits forever")
	}
	if wrong := s.wrong.Load(); wrong != nil {
		t.Error(wrong)
	}
	return time.Since(begin)
}

// mostIn is what a limiter may grant within some time, with limits up to high.
func mostIn(k limitertest.Kind, elapsed time.Duration) int64 {
	l := stressLimits(stressHigh)
	periods := int64(elapsed/l.Period) + 1
	switch k {
	case limitertest.TokenBucket:
		return stressHigh + periods*int64(l.TokensPerPeriod)
	case limitertest.SlidingWindow, limitertest.FixedWindow:
		return (periods + 1) * stressHigh
	}
	return 1 << 62
}

func TestLimiters_StressConcurrentSafe(t *testing.T) {
	for _, k := range kinds[:4] { // days of a calendar take too long
		t.Run(k.String(), func(t *testing.T) {
			t.Parallel()
			begin := time.Now()
			l, err := build(k, stressLimits(stressHigh))
			if err != nil {
				t.Fatal(err)
			}
			s := &stress{l: l}
			s.run(t, func(i int) {
				to := stressLimits([]int{stressHigh, stressLow, 5}[i%3])
				to.Order = limiter.QueueOrder(i / 7 % 2)
				to.QueueLimit = 5 + 5*(i%9)
				if err := reconfigure(l, to); err != nil {
					t.Error(err)
				}
				if st := l.(limiter.StatisticsProvider).Statistics(); st.AvailablePermits < 0 || st.AvailablePermits > stressHigh || st.QueuedPermits < 0 {
					t.Errorf("impossible statistics: %+v", st)
				}
			})
			s.verify(t, k, time.Since(begin))
		})
	}
}

// verify compares the callers' sums with the limiter's statistics, and with what it
// can grant.
func (s *stress) verify(t *testing.T, k limitertest.Kind, elapsed time.Duration) {
	t.Helper()
	if k == limitertest.Concurrency && s.most.Load() > stressHigh {
		t.Errorf("%d were held at once, more than %d", s.most.Load(), stressHigh)
	}
	if got, most := s.permits.Load(), mostIn(k, elapsed); got > most || got == 0 {
		t.Errorf("%d permits were granted in %v, want some, and at most %d", got, elapsed, most)
	}
	if err := reconfigure(s.l, stressLimits(stressHigh)); err != nil {
		t.Fatal(err)
	}
	time.Sleep(30 * time.Millisecond) // 14 tokens, or 7 windows
	want := limiter.Statistics{
		AvailablePermits: stressHigh, SuccessfulLeases: s.successes.Load(), FailedLeases: s.rejections.Load(),
	}
	if got := s.l.(limiter.StatisticsProvider).Statistics(); got != want {
		t.Errorf("after all callers left the statistics are %+v, want %+v", got, want)
	}
	if _, ok := s.l.(custom.Idler).IdleDuration(); !ok {
		t.Error("it is unused, but not idle")
	}
	if lease, err := s.l.TryAcquire(context.Background(), stressHigh); err != nil || !lease.Acquired() {
		t.Errorf("the whole limit should be there: %+v %v", lease, err)
	}
}

// A limiter can be closed at any time: all callers come back.
func TestLimiters_StressCloseConcurrentSafe(t *testing.T) {
	for _, k := range kinds {
		t.Run(k.String(), func(t *testing.T) {
			t.Parallel()
			for range 20 {
				l, err := build(k, stressLimits(stressLow))
				if err != nil {
					t.Fatal(err)
				}
				s := &stress{l: l}
				var wg sync.WaitGroup
				for i := range stressWorkers {
					wg.Go(func() { s.work(rand.New(rand.NewPCG(uint64(i), 9)), nil) })
				}
				time.Sleep(3 * time.Millisecond)
				for range 3 {
					wg.Go(func() {
						if err := l.(io.Closer).Close(); err != nil {
							t.Error(err)
						}
					})
				}
				wg.Wait()
				if wrong := s.wrong.Load(); wrong != nil {
					t.Error(wrong)
				}
				got := l.(limiter.StatisticsProvider).Statistics()
				if got.QueuedPermits != 0 || got.SuccessfulLeases != s.successes.Load() || got.FailedLeases != s.rejections.Load() {
					t.Errorf("the last figures are %+v, want an empty queue, %d successes and %d failures",
						got, s.successes.Load(), s.rejections.Load())
				}
			}
		})
	}
}
