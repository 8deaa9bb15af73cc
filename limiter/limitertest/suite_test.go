package limitertest_test

import (
	"strings"
	"testing"
	"time"

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

// A limiter that can do no more than two calls, and whose grid starts anywhere.
func TestRun_Least(t *testing.T) {
	for _, k := range kinds {
		limitertest.Run(t, limitertest.Subject{
			Kind: k,
			New: func(_ testing.TB, l limitertest.Limits) limiter.Limiter {
				made := model.NewLimiter(k, l, model.None)
				time.Sleep(l.Step(k) / 3)
				return least{made}
			},
			Lacks: limitertest.Queue | limitertest.NewestFirst | limitertest.Statistics | limitertest.Idle | limitertest.Close |
				limitertest.Refund | limitertest.Peek | limitertest.Charge | limitertest.Anchored,
		})
	}
}

type least struct{ limiter.Limiter }
