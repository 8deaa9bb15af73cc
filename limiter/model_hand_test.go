package limiter_test

import (
	"testing"
	"time"

	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/limiter/internal/naive"
	"github.com/weir-go/weir/limiter/limitertest"
)

// The model itself is held to answers that were worked out by hand.

func expect(t *testing.T, r *naive.Request, o naive.Outcome, at, retry time.Duration) {
	t.Helper()
	if r.Outcome != o || o != naive.Waiting && r.At != at || r.RetryMin != retry || r.RetryMax != retry {
		t.Errorf("%d permits: got %v at %v, retry after %v to %v; want %v at %v, %v",
			r.N, r.Outcome, r.At, r.RetryMin, r.RetryMax, o, at, retry)
	}
}

func TestModel_TokenBucketByHand(t *testing.T) {
	m := naive.New(limitertest.TokenBucket, limitertest.Limits{Permits: 5, TokensPerPeriod: 2, Period: 10, QueueLimit: 6})
	expect(t, m.Try(5), naive.Granted, 0, 0)
	m.Advance(3)
	expect(t, m.Try(3), naive.Rejected, 3, 17) // 4 tokens at 20
	w := m.Acquire(5)                          // at 30
	expect(t, w, naive.Waiting, 0, 0)
	expect(t, m.Try(2), naive.Rejected, 3, 37) // the bucket holds 5: nothing is left at 30, 2 come at 40
	expect(t, m.Try(1), naive.Rejected, 3, 37)
	m.Advance(45)
	expect(t, w, naive.Granted, 30, 0)
	expect(t, m.Try(2), naive.Granted, 45, 0)
	expect(t, m.Try(1), naive.Rejected, 45, 5)
}

func TestModel_SlidingWindowByHand(t *testing.T) {
	m := naive.New(limitertest.SlidingWindow, limitertest.Limits{Permits: 4, Segments: 3, Period: 30, QueueLimit: 4})
	expect(t, m.Try(1), naive.Granted, 0, 0) // until 30
	m.Advance(19)
	expect(t, m.Try(2), naive.Granted, 19, 0) // until 40
	m.Advance(20)
	expect(t, m.Try(1), naive.Granted, 20, 0)   // until 50
	expect(t, m.Try(1), naive.Rejected, 20, 10) // 1 at 30
	expect(t, m.Try(4), naive.Rejected, 20, 30) // 4 at 50
	w := m.Acquire(2)                           // at 40
	expect(t, m.Try(2), naive.Rejected, 20, 30) // 1 left at 40, 2 at 50
	m.Advance(100)
	expect(t, w, naive.Granted, 40, 0)
	if _, most, ok := m.Idle(); !ok || most != 30 {
		t.Errorf("idle for %v %v, want 30 since the waiter's segment left at 70", most, ok)
	}
}

func TestModel_FixedWindowByHand(t *testing.T) {
	m := naive.New(limitertest.FixedWindow, limitertest.Limits{Permits: 3, Period: 10, QueueLimit: 4, Order: limiter.NewestFirst})
	expect(t, m.Try(3), naive.Granted, 0, 0)
	old, mid := m.Acquire(2), m.Acquire(2)
	newest := m.Acquire(1) // pushes out the oldest
	expect(t, mid, naive.Waiting, 0, 0)
	expect(t, newest, naive.Waiting, 0, 0)
	expect(t, old, naive.Rejected, 0, 20) // at 10 the two take all 3
	m.Advance(10)
	expect(t, mid, naive.Granted, 10, 0)
	expect(t, newest, naive.Granted, 10, 0)
	m.Advance(18)
	l := m.Limits
	l.Period = 5 // 15 is past: a window begins at 18
	m.Reconfigure(l)
	expect(t, m.Try(3), naive.Granted, 18, 0)
	expect(t, m.Try(1), naive.Rejected, 18, 5)
}

func TestModel_ConcurrencyByHand(t *testing.T) {
	m := naive.New(limitertest.Concurrency, limitertest.Limits{Permits: 4, QueueLimit: 9})
	expect(t, m.Try(3), naive.Granted, 0, 0)
	big, zero, one := m.Acquire(3), m.Acquire(0), m.Acquire(1)
	expect(t, big, naive.Waiting, 0, 0)
	expect(t, zero, naive.Granted, 0, 0) // one is left
	expect(t, one, naive.Waiting, 0, 0)
	m.Advance(7)
	m.Cancel(big)
	expect(t, one, naive.Granted, 7, 0)
	expect(t, m.Try(1), naive.Rejected, 7, 0)
	l := m.Limits
	l.Permits = 2 // 4 are held
	m.Reconfigure(l)
	m.Release(2)
	expect(t, m.Try(0), naive.Rejected, 7, 0)
	m.Release(1)
	expect(t, m.Try(1), naive.Granted, 7, 0)
}

// What may be granted at most is checked apart from the model; that check is
// tried by hand too.
func TestLedger_ByHand(t *testing.T) {
	l := limitertest.Limits{Permits: 4, TokensPerPeriod: 1, Segments: 2, Period: 10}
	type grant struct {
		at time.Duration
		n  int
	}
	for _, c := range []struct {
		kind   limitertest.Kind
		grants []grant
		wrong  bool
	}{
		{limitertest.Concurrency, []grant{{0, 3}, {1, 1}}, false},
		{limitertest.Concurrency, []grant{{0, 3}, {1, 2}}, true},
		{limitertest.FixedWindow, []grant{{9, 4}, {10, 4}}, false},
		{limitertest.FixedWindow, []grant{{8, 4}, {9, 1}}, true},
		{limitertest.SlidingWindow, []grant{{4, 4}, {10, 4}}, false},
		{limitertest.SlidingWindow, []grant{{5, 4}, {10, 1}}, true},
		{limitertest.TokenBucket, []grant{{0, 4}, {10, 1}, {29, 1}}, false},
		{limitertest.TokenBucket, []grant{{0, 4}, {10, 1}, {19, 1}}, true},
		{limitertest.TokenBucket, []grant{{19, 1}, {0, 4}, {10, 1}}, true}, // noted late
	} {
		var g grantLedger
		g.begin(c.kind, l)
		for _, gr := range c.grants {
			g.grant(gr.at, gr.n)
		}
		wrong := false
		g.check(func(string, ...any) { wrong = true })
		if wrong != c.wrong {
			t.Errorf("%v %v: too much is %v, want %v", c.kind, c.grants, wrong, c.wrong)
		}
	}
}
