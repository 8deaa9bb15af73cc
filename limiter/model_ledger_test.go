package limiter_test

import (
	"slices"
	"testing"
	"time"

	"github.com/weir-go/weir/limiter/limitertest"
)

// A grantLedger knows what was granted when, and the grid by arithmetic alone, and
// checks what holds whatever a limiter's inner life is: that it never grants too
// much. It knows nothing of the model.
type grantLedger struct {
	kind    limitertest.Kind
	limits  limitertest.Limits
	anchor  time.Duration // of the grid now in force
	largest limitertest.Limits
	entries []entry // since that grid is in force
	held    int     // concurrency
	fresh   bool    // entries were added since the last check
}

type entry struct {
	line int // grid lines since the anchor
	n    int
}

func (g *grantLedger) begin(k limitertest.Kind, l limitertest.Limits) {
	g.kind, g.limits, g.largest = k, l, l
}

func (g *grantLedger) release(n int) {
	if g.kind == limitertest.Concurrency {
		g.held -= n
	}
}

// grant notes permits that were granted or, below 0, given back by a Charge. What a Charge takes is not noted.
func (g *grantLedger) grant(at time.Duration, n int) {
	g.held += n
	if every := g.limits.Step(g.kind); every > 0 && n != 0 {
		g.entries = append(g.entries, entry{int((at - g.anchor) / every), n})
		g.fresh = true
	}
}

// reconfigure begins again if the grid changes.
func (g *grantLedger) reconfigure(now time.Duration, to limitertest.Limits) {
	every, old := to.Step(g.kind), g.limits
	if g.kind != limitertest.Concurrency && (every != old.Step(g.kind) || to.Period != old.Period) {
		line := g.anchor + (now-g.anchor)/old.Step(g.kind)*old.Step(g.kind)
		g.anchor, g.entries = line, nil
		if line+every <= now {
			g.anchor = now
		}
		g.largest = old
	}
	g.limits = to
	g.largest.Permits = max(g.largest.Permits, to.Permits)
	g.largest.TokensPerPeriod = max(g.largest.TokensPerPeriod, to.TokensPerPeriod)
}

// check says what is too much.
func (g *grantLedger) check(wrong func(string, ...any)) {
	if g.kind == limitertest.Concurrency {
		if g.held > g.largest.Permits {
			wrong("%d are held, more than %d", g.held, g.largest.Permits)
		}
		return
	}
	if !g.fresh {
		return
	}
	g.fresh = false
	slices.SortFunc(g.entries, func(a, b entry) int { return a.line - b.line })
	g.mergeLines()
	for last := range g.entries {
		g.checkUntil(last, wrong)
	}
}

// mergeLines makes one entry of those of a line. A grant on a line and a Charge that gives permits back on it can be noted
// in the wrong order, so that only their sum counts.
func (g *grantLedger) mergeLines() {
	merged := g.entries[:0]
	for _, e := range g.entries {
		if last := len(merged) - 1; last >= 0 && merged[last].line == e.line {
			merged[last].n += e.n
			continue
		}
		merged = append(merged, e)
	}
	g.entries = merged
}

// checkUntil looks at all that was granted from some entry until that one.
func (g *grantLedger) checkUntil(last int, wrong func(string, ...any)) {
	window := 0 // in grid lines
	if g.kind == limitertest.SlidingWindow {
		window = g.limits.Segments - 1
	}
	for i, sum := last, 0; i >= 0; i-- {
		sum += g.entries[i].n
		lines := g.entries[last].line - g.entries[i].line
		if g.kind == limitertest.TokenBucket {
			if most := g.largest.Permits + lines*g.largest.TokensPerPeriod; sum > most {
				wrong("%d were granted within %d grid lines, more than %d", sum, lines, most)
			}
		} else if lines <= window && sum > g.largest.Permits {
			wrong("%d were granted within a window, more than %d", sum, g.largest.Permits)
		}
	}
}

// What may be granted at most is checked apart from the model, and that check is tried by hand.
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
