package limitertest_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/limiter/internal/model"
	"github.com/weir-go/weir/limiter/limitertest"
)

var kinds = []limitertest.Kind{
	limitertest.Concurrency, limitertest.FixedWindow, limitertest.SlidingWindow, limitertest.TokenBucket, limitertest.Calendar,
}

// modeled is the model as a subject, with something wrong.
func modeled(k limitertest.Kind, f model.Fault) limitertest.Subject {
	return limitertest.Subject{
		Kind: k,
		New: func(_ testing.TB, l limitertest.Limits) limiter.Limiter {
			return model.NewLimiter(k, l, f)
		},
		Reconfigure: func(l limiter.Limiter, to limitertest.Limits) error {
			return l.(*model.Limiter).Reconfigure(to)
		},
	}
}

func TestRun_CorrectLimiter(t *testing.T) {
	for _, k := range kinds {
		t.Run(k.String(), func(t *testing.T) { limitertest.Run(t, modeled(k, model.None)) })
	}
}

func TestCases_Names(t *testing.T) {
	seen := map[string]bool{}
	for _, name := range limitertest.Names() {
		if seen[name] {
			t.Errorf("two cases are called %q", name)
		}
		if seen[name] = true; !strings.Contains(name, " ") {
			t.Errorf("%q is no sentence", name)
		}
	}
}

func TestSubject_Lacks(t *testing.T) {
	s := modeled(limitertest.Concurrency, model.WrongOrder)
	s.Lacks = limitertest.Queue | limitertest.NewestFirst
	for name, failures := range limitertest.Check(t, s) {
		t.Errorf("%s: without a queue its order cannot be wrong: %v", name, failures)
	}
}

// remoteSubject is the model of a fixed window as a store would have it: it answers late, and its grid starts anywhere.
func remoteSubject(newLimiter func(l limitertest.Limits) limiter.Limiter) limitertest.Subject {
	return limitertest.Subject{
		Kind: limitertest.FixedWindow,
		New:  func(_ testing.TB, l limitertest.Limits) limiter.Limiter { return newLimiter(l) },
		Lacks: limitertest.Queue | limitertest.Statistics | limitertest.Idle | limitertest.Close |
			limitertest.Refund | limitertest.Anchored,
		RealTime:  true,
		Tolerance: 20 * time.Millisecond,
		Unit:      400 * time.Millisecond,
	}
}

// The bubble's clock stands for the real one. A machine that is busy would fail a real-time test of a correct limiter.
func TestRun_RealTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, failures := range limitertest.Check(t, remoteSubject(func(l limitertest.Limits) limiter.Limiter {
			return remote{model.NewLimiter(limitertest.FixedWindow, l, model.None)}
		})) {
			t.Errorf("%s: %v", name, failures)
		}
	})
}

// In real time, a case that fails because an answer came later than the Tolerance is run again, and with more time if
// that was the machine's doing.
func TestRun_RealTimeLateAnswers(t *testing.T) {
	for name, test := range map[string]struct {
		stalls  int           // limiters whose fifth answer, just before a grid line, is late
		stall   time.Duration // by so much
		machine time.Duration // a timer of the machine is that late
		fault   model.Fault
		passes  bool
		tries   int
	}{
		"a machine that stands still now and then":      {3, 400 * time.Millisecond, 0, model.None, true, 4},
		"a limiter that always answers late":            {1000, 400 * time.Millisecond, 0, model.None, false, 5},
		"a limiter that always answers a little late":   {1000, 90 * time.Millisecond, 0, model.None, false, 5},
		"a machine that is always a little late":        {1000, 90 * time.Millisecond, 90 * time.Millisecond, model.None, true, 3},
		"a machine that is always too late by far":      {1000, 4 * time.Second, 4 * time.Second, model.None, false, 5},
		"a limiter with a fault":                        {0, 0, 0, model.NoRetryAfter, false, 1},
		"a limiter with a fault on a machine that lags": {1000, 90 * time.Millisecond, 90 * time.Millisecond, model.NoRetryAfter, false, 3},
	} {
		t.Run(name, func(t *testing.T) {
			limitertest.PretendLateness(t, test.machine)
			synctest.Test(t, func(t *testing.T) {
				made := 0
				failures, ok := limitertest.CheckOne(t, remoteSubject(func(l limitertest.Limits) limiter.Limiter {
					made++
					r := &stalling{remote: remote{model.NewLimiter(limitertest.FixedWindow, l, test.fault)}}
					if made <= test.stalls {
						r.stall = test.stall
					}
					return r
				}), "a fixed window says to retry at the next window")
				require.True(t, ok)
				require.Equal(t, test.passes, len(failures) == 0, failures)
				require.Equal(t, test.tries, made)
			})
		})
	}
}

// A stalling limiter takes longer for its fifth answer.
type stalling struct {
	remote
	stall time.Duration
	calls int
}

func (s *stalling) TryAcquire(ctx context.Context, n int) (limiter.Lease, error) {
	if s.calls++; s.calls == 5 {
		time.Sleep(s.stall)
	}
	return s.remote.TryAcquire(ctx, n)
}

// remote answers late, and can do nothing but the two calls.
type remote struct{ l *model.Limiter }

func (r remote) TryAcquire(ctx context.Context, n int) (limiter.Lease, error) {
	time.Sleep(time.Millisecond)
	return r.l.TryAcquire(ctx, n)
}

func (r remote) Peek(ctx context.Context, n int) (limiter.Lease, error) {
	time.Sleep(time.Millisecond)
	return r.l.Peek(ctx, n)
}

func (r remote) Charge(ctx context.Context, n int) (limiter.Level, error) {
	time.Sleep(time.Millisecond)
	return r.l.Charge(ctx, n)
}

func (r remote) Acquire(ctx context.Context, n int) (limiter.Lease, error) {
	time.Sleep(time.Millisecond)
	return r.l.Acquire(ctx, n)
}
