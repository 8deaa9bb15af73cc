package limitertest_test

import (
	"strings"
	"testing"

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

func TestALimiterThatIsRightPasses(t *testing.T) {
	for _, k := range kinds {
		t.Run(k.String(), func(t *testing.T) { limitertest.Run(t, naively(k, naive.None)) })
	}
}

func TestCaseNamesAreUniqueSentences(t *testing.T) {
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

func TestLacksLeavesCasesOut(t *testing.T) {
	s := naively(limitertest.Concurrency, naive.WrongOrder)
	s.Lacks = limitertest.Queue | limitertest.NewestFirst
	for name, failures := range limitertest.Check(t, s) {
		t.Errorf("%s: without a queue its order cannot be wrong: %v", name, failures)
	}
}
