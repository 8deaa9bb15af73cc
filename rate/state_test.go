package rate_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/rate"
)

// schedules are small enough that random calls meet everything.
var schedules = []rate.Schedule{
	{Kind: rate.TokenBucket, Permits: 8, Refill: 1, Period: 10},
	{Kind: rate.TokenBucket, Permits: 8, Refill: 3, Period: 10, Anchor: 3},
	{Kind: rate.FixedWindow, Permits: 8, Period: 10, Anchor: -4},
	{Kind: rate.SlidingWindow, Permits: 8, Segments: 1, Period: 10},
	{Kind: rate.SlidingWindow, Permits: 8, Segments: 4, Period: 10, Anchor: 7},
	{Kind: rate.Calendar, Permits: 8, Segments: 1, Period: 10, Anchor: 5}, // one that Window has returned
}

// seeds returns how many scripts to run; a tenth of that with -short.
func seeds(n uint64) uint64 {
	if testing.Short() {
		return n / 10
	}
	return n
}

// A history is every call of a script. It says what a state should be by going through all of them again, and knows nothing of
// receipts.
type history []entry

type entry struct {
	at, taken int64
	back      bool // taken is given back, of no grant in particular
}

// missing returns what is missing at a moment: the rules of docs/semantics.md in the simplest way.
func (h history) missing(g rate.Schedule, now int64) int64 {
	line := func(t int64) int64 {
		n := t - g.Anchor + 1000*g.Period // above 0
		return n/g.Period - 1000
	}
	if g.Segments == 0 {
		missing, last := int64(0), line(0)
		pass := func(to int64) {
			for ; last < to; last++ {
				if missing -= g.Refill; missing < 0 || g.Kind == rate.FixedWindow {
					missing = 0
				}
			}
		}
		for _, e := range h {
			pass(line(e.at))
			if missing += e.taken; e.back {
				missing = max(missing-2*e.taken, 0)
			}
		}
		pass(line(now))
		return missing
	}
	var permits []int64 // the line on which each permit was taken
	leave := func(now int64) {
		permits = slices.DeleteFunc(permits, func(l int64) bool { return l+g.Segments <= line(now) })
	}
	for _, e := range h {
		leave(e.at)
		for range e.taken {
			switch {
			case !e.back:
				permits = append(permits, line(e.at))
			case int64(len(permits)) > g.Permits:
				permits = permits[:len(permits)-1]
			case len(permits) > 0:
				permits = permits[1:]
			}
		}
	}
	leave(now)
	return int64(len(permits))
}

// A refund gives back everything as long as no line has passed, and never leaves more permits than if the grant had not been.
func TestRefund_IsExactAtOnceAndNeverTooMuch(t *testing.T) {
	for seed := range seeds(20000) {
		r := rand.New(rand.NewPCG(seed, 1))
		g := schedules[r.IntN(len(schedules))]
		script(t, seed, r, g)
		if t.Failed() {
			return
		}
	}
}

func script(t *testing.T, seed uint64, r *rand.Rand, g rate.Schedule) {
	type grant struct {
		receipt rate.Receipt
		line, n int64
		entry   int
		cleared bool // permits were given back since
	}
	now := int64(0)
	s := g.Full(now)
	var h history
	var grants []grant
	owed := false
	for range 1 + r.IntN(25) {
		now += []int64{0, 0, 3, 10, 25}[r.IntN(5)]
		g.Advance(&s, now)
		n := 1 + r.Int64N(4)
		switch op := r.IntN(8); {
		case op < 4:
			taken, ok := g.Take(&s, n, n)
			if ok {
				require.Equal(t, n, taken)
				h = append(h, entry{at: now, taken: n})
				grants = append(grants, grant{receipt: g.Receipt(&s), line: s.Line, n: n, entry: len(h) - 1})
			}
		case op == 4:
			h = append(h, entry{at: now, taken: g.Charge(&s, n)})
		case op == 5:
			before := s.Missing
			back := g.GiveBack(&s, n)
			require.Equal(t, min(n, before), back)
			h = append(h, entry{at: now, taken: n, back: true})
			for i := range grants {
				grants[i].cleared = true
			}
		case len(grants) > 0:
			i := r.IntN(len(grants))
			before := s.Missing
			back := g.Refund(&s, grants[i].receipt, grants[i].n)
			require.Equal(t, before-back, s.Missing)
			if grants[i].line == s.Line && !grants[i].cleared {
				require.Equal(t, grants[i].n, back, "seed %d: %+v: a refund on the line of the grant", seed, g)
			}
			h[grants[i].entry].taken = 0
			grants = slices.Delete(grants, i, i+1)
		}
		owed = owed || s.Missing > g.Permits && g.Segments > 0 // semantics.md, Charge 2
		if !owed {
			require.GreaterOrEqual(t, s.Missing, h.missing(g, now), "seed %d: %+v: too much was given back", seed, g)
		}
		sum := int64(0)
		for _, segment := range s.Segments {
			require.Positive(t, segment.Permits)
			sum += segment.Permits
		}
		if g.Segments > 0 {
			require.Equal(t, s.Missing, sum)
		}
	}
}

// Without refunds, a state is what the history says, and Wait and LineOf are the first moments of what they promise.
func TestState_IsItsHistory(t *testing.T) {
	for seed := range seeds(5000) {
		r := rand.New(rand.NewPCG(seed, 2))
		g := schedules[r.IntN(len(schedules))]
		now := int64(0)
		s := g.Full(now)
		var h history
		for range 1 + r.IntN(20) {
			now += []int64{0, 3, 10, 25}[r.IntN(4)]
			g.Advance(&s, now)
			switch n := 1 + r.Int64N(4); r.IntN(6) {
			case 0:
				h = append(h, entry{at: now, taken: g.Charge(&s, n)})
			case 1:
				g.GiveBack(&s, n)
				h = append(h, entry{at: now, taken: n, back: true})
			default:
				taken, ok := g.Take(&s, n, n+r.Int64N(3))
				require.Equal(t, g.Permits-h.missing(g, now) >= n, ok)
				h = append(h, entry{at: now, taken: taken})
			}
			require.Equal(t, h.missing(g, now), s.Missing, "seed %d: %+v", seed, g)
		}
		for n := int64(1); n <= g.Permits; n++ {
			wait := int64(0)
			for ; g.Permits-h.missing(g, now+wait) < n; wait++ {
			}
			require.Equal(t, wait, g.Wait(&s, now, n), "seed %d: %+v: %d permits", seed, g, n)
		}
		if full := g.TimeOf(g.LineOf(&s, s.Missing)); full > now {
			require.Zero(t, h.missing(g, full))
			require.Positive(t, h.missing(g, full-1))
		}
	}
}

// Permits that have been refunded are remembered until lines would have brought them, and no longer.
func TestFullAt_RemembersRefunds(t *testing.T) {
	g := schedules[0]
	s := g.Full(0)
	_, _ = g.Take(&s, 5, 5)
	a := g.Receipt(&s)
	_, _ = g.Take(&s, 3, 3)
	b := g.Receipt(&s)
	require.Equal(t, int64(3), g.Refund(&s, b, 3))
	assert.Equal(t, int64(80), g.FullAt(&s), "a new state would not know that b has given its permits back")
	g.Advance(&s, 20)
	assert.Equal(t, int64(0), g.Refund(&s, a, 5), "after a line, a refund of any grant counts as paid: too little rather than too much")
	g.Advance(&s, 80)
	assert.Equal(t, rate.State{Line: 8}, s)
}

// The clock steps back: the same permits are missing, for as many lines.
func TestAdvance_ClockStepsBack(t *testing.T) {
	for _, g := range schedules {
		now := int64(1000)
		s := g.Full(now)
		_, _ = g.Take(&s, 4, 4)
		wait := g.LineOf(&s, 4) - s.Line
		g.Advance(&s, now-500)
		assert.Equal(t, int64(4), s.Missing)
		assert.Equal(t, wait, g.LineOf(&s, 4)-s.Line)
	}
}

// The clock steps back and goes on: a refund of a window gives back what its grant took, and nothing that others have taken since.
func TestRefund_ClockStepsBack(t *testing.T) {
	for _, g := range schedules {
		if g.Segments == 0 {
			continue
		}
		now := int64(1000)
		s := g.Full(now)
		_, _ = g.Take(&s, 4, 4)
		receipt := g.Receipt(&s)
		g.Advance(&s, now-500)
		later := s
		later.Segments = slices.Clone(s.Segments)
		assert.Equal(t, int64(4), g.Refund(&s, receipt, 4), "it still counts")
		g.Advance(&later, now)
		_, _ = g.Take(&later, 4, 4)
		assert.Zero(t, g.Refund(&later, receipt, 4), "time has brought it back")
	}
}
