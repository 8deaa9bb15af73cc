package limiter_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/limiter/internal/model"
	"github.com/weir-go/weir/limiter/limitertest"
)

// scriptsPerKind is how many scripts a run tries; a tenth of that with -short.
const scriptsPerKind = 1200

// holds runs s on what newLimiter makes, and reports the shortest script that it finds
// to disagree with the model.
func (s script) holds(t *testing.T, newLimiter maker, origin string) {
	t.Helper()
	problem, _ := s.try(t, newLimiter)
	if problem == "" {
		return
	}
	small := s.shrink(t, newLimiter)
	problem, trace := small.try(t, newLimiter)
	t.Fatalf("%s: model and limiter disagree %s\n%v\nwhat happened:\n%s", origin, problem, small, trace)
}

// maxTries bounds the work of shrinking.
const maxTries = 600

// shrink drops what steps it can, many at a time first.
func (s script) shrink(t *testing.T, newLimiter maker) script {
	tries := 0
	for size := len(s.steps); size >= 1; size /= 2 {
		for at := 0; at+size <= len(s.steps) && tries < maxTries; {
			tries++
			less := s
			less.steps = slices.Delete(slices.Clone(s.steps), at, at+size)
			if problem, _ := less.try(t, newLimiter); problem != "" {
				s = less
				continue
			}
			at++
		}
	}
	return s
}

func randomScript(k limitertest.Kind, seed uint64) script {
	r := rand.New(rand.NewPCG(seed, uint64(k)))
	return generate(k, &randomSource{Rand: r, steps: 3 + r.IntN(60)})
}

// Every limiter does what its model says, whatever is done to it.
func TestModel(t *testing.T) {
	for _, k := range kinds {
		t.Run(k.String(), func(t *testing.T) {
			n := uint64(scriptsPerKind)
			if testing.Short() {
				n /= 10
			}
			for seed := range n {
				randomScript(k, seed).holds(t, build, fmt.Sprintf("seed %d", seed))
				if t.Failed() {
					return
				}
			}
		})
	}
}

// The scripts find every fault that needs no race and no odd context to be seen.
func TestModel_NoticesFaults(t *testing.T) {
	elsewhere := map[model.Fault]bool{model.RacyGrant: true, model.NoCause: true, model.DeafToContext: true}
	for _, f := range model.Faults() {
		if elsewhere[f] {
			continue
		}
		where := kinds
		if f == model.ChargeNewest || f == model.ChargeOldest {
			where = []limitertest.Kind{limitertest.SlidingWindow} // only what has segments can have it
		}
		t.Run(string(f), func(t *testing.T) {
			t.Parallel()
			broken := func(k limitertest.Kind, l limitertest.Limits) (limiter.Limiter, error) {
				return model.NewLimiter(k, l, f), nil
			}
			for seed := range uint64(400) {
				for _, k := range where {
					if problem, _ := randomScript(k, seed).try(t, broken); problem != "" {
						return
					}
				}
			}
			t.Errorf("no script notices the fault %v", f)
		})
	}
}
