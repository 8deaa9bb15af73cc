package limitertest_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/limiter/internal/naive"
	"github.com/weir-go/weir/limiter/limitertest"
)

var kinds = []limitertest.Kind{
	limitertest.Concurrency, limitertest.FixedWindow, limitertest.SlidingWindow, limitertest.TokenBucket,
}

// naively is the naive limiter as a subject, with something wrong.
func naively(k limitertest.Kind, f naive.Fault) limitertest.Subject {
	return limitertest.Subject{
		Kind: k,
		New: func(_ testing.TB, l limitertest.Limits) limiter.Limiter {
			return naive.NewLimiter(k, l, f)
		},
		Reconfigure: func(l limiter.Limiter, to limitertest.Limits) error {
			return l.(*naive.Limiter).Reconfigure(to)
		},
	}
}

func TestRun_CorrectLimiter(t *testing.T) {
	for _, k := range kinds {
		t.Run(k.String(), func(t *testing.T) { limitertest.Run(t, naively(k, naive.None)) })
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
	s := naively(limitertest.Concurrency, naive.WrongOrder)
	s.Lacks = limitertest.Queue | limitertest.NewestFirst
	for name, failures := range limitertest.Check(t, s) {
		t.Errorf("%s: without a queue its order cannot be wrong: %v", name, failures)
	}
}

// In real time, a case that fails because an answer came later than the Tolerance is run again.
func TestRun_RealTimeLateAnswers(t *testing.T) {
	const unit = 400 * time.Millisecond
	for name, test := range map[string]struct {
		stalls int // limiters whose third answer takes longer than a window
		fault  naive.Fault
		passes bool
	}{
		"a machine that stands still now and then": {3, naive.None, true},
		"one that always does":                     {1000, naive.None, false},
		"a limiter with a fault":                   {0, naive.NoRetryAfter, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				made := 0
				failures, ok := limitertest.CheckOne(t, limitertest.Subject{
					Kind: limitertest.FixedWindow,
					New: func(_ testing.TB, l limitertest.Limits) limiter.Limiter {
						made++
						r := &stalling{remote: remote{naive.NewLimiter(limitertest.FixedWindow, l, test.fault)}}
						if made <= test.stalls {
							r.stall = unit
						}
						return r
					},
					Lacks:     limitertest.Queue | limitertest.Statistics | limitertest.Idle | limitertest.Close | limitertest.Manual,
					RealTime:  true,
					Tolerance: 20 * time.Millisecond,
					Unit:      unit,
				}, "a fixed window says to retry at the next window")
				require.True(t, ok)
				require.Equal(t, test.passes, len(failures) == 0, failures)
				require.LessOrEqual(t, made, 5)
			})
		})
	}
}

// A stalling limiter takes longer for its third answer.
type stalling struct {
	remote
	stall time.Duration
	calls int
}

func (s *stalling) TryAcquire(ctx context.Context, n int) (limiter.Lease, error) {
	if s.calls++; s.calls == 3 {
		time.Sleep(s.stall)
	}
	return s.remote.TryAcquire(ctx, n)
}
