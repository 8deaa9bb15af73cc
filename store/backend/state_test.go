package backend

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A ledger plays the part of all who take from one bucket: those who use what they take
// at once, those who give it back unused, and those who borrow a block and use it bit by bit.
type ledger struct {
	d      *Definition
	s      State
	used   map[int64]int64 // by line
	loans  []*loanOf
	plain  []plainOf
	random *rand.Rand
	said   []string
	// refunded is how much all refunds together have given back.
	refunded int64
}

// A loanOf is a block: the positions (next, mark.After] of it are unused.
type loanOf struct {
	mark Receipt
	next int64
}

// A plainOf is a grant that may be given back unused.
type plainOf struct {
	mark     Receipt
	line     int64
	n        int64
	refunded int64 // by all, when it was granted
}

func (g *ledger) say(format string, a ...any) {
	g.said = append(g.said, fmt.Sprintf("line %d: %s -> missing %d held %d", g.s.Tick, fmt.Sprintf(format, a...), g.s.Missing, g.s.RefundFloor))
}

func (g *ledger) ask(a Request) int64 {
	granted := []int64{0}
	g.s = g.d.Decide(g.s, g.d.TickTime(g.s.Tick), []Request{a}, granted)
	return granted[0]
}

func (g *ledger) mark() Receipt { return Receipt{Tick: g.s.Tick, Missing: g.s.Missing} }

func (g *ledger) step() {
	n := 1 + g.random.Int64N(g.d.Permits)
	switch g.random.IntN(8) {
	case 0, 1:
		g.s = g.d.Advance(g.s, g.d.TickTime(g.s.Tick+1+g.random.Int64N(3)))
		g.say("time")
	case 2:
		if got := g.ask(Request{Min: 1, Max: n}); got > 0 {
			g.plain = append(g.plain, plainOf{g.mark(), g.s.Tick, got, g.refunded})
			g.used[g.s.Tick] += got
			g.say("take %d", got)
		}
	case 3:
		if got := g.ask(Request{Min: 1, Max: n, Block: true}); got > 0 {
			g.loans = append(g.loans, &loanOf{g.mark(), g.s.Missing - got})
			g.say("lend %d", got)
		}
	case 4, 5:
		g.useLoan()
	case 6:
		g.returnLoan()
	case 7:
		g.refundPlain()
	}
}

func (g *ledger) pick() (*loanOf, int) {
	if len(g.loans) == 0 {
		return nil, 0
	}
	i := g.random.IntN(len(g.loans))
	l := g.loans[i]
	l.next = max(l.next, (g.s.Tick-l.mark.Tick)*g.d.Refill)
	return l, i
}

func (g *ledger) useLoan() {
	l, _ := g.pick()
	if l == nil || l.next >= l.mark.Missing {
		return
	}
	n := 1 + g.random.Int64N(l.mark.Missing-l.next)
	l.next += n
	g.used[g.s.Tick] += n
	g.say("use %d of %+v", n, l.mark)
}

func (g *ledger) returnLoan() {
	l, i := g.pick()
	if l == nil || l.next >= l.mark.Missing {
		return
	}
	got := g.ask(Request{Op: OpReturnBlock, Max: l.mark.Missing - l.next, Receipt: l.mark})
	g.say("return %d of %+v: %d", l.mark.Missing-l.next, l.mark, got)
	if got > 0 {
		g.loans = append(g.loans[:i], g.loans[i+1:]...)
	}
}

func (g *ledger) refundPlain() {
	if len(g.plain) == 0 {
		return
	}
	i := g.random.IntN(len(g.plain))
	p := g.plain[i]
	if p.refunded != g.refunded && p.line != g.s.Tick {
		return // see TestDecide_RefundAfterOtherRefunds
	}
	g.plain = append(g.plain[:i], g.plain[i+1:]...)
	g.used[p.line] -= p.n
	got := g.ask(Request{Op: OpRefund, Max: p.n, Receipt: p.mark})
	g.refunded += got
	g.say("refund %d of %+v: %d", p.n, p.mark, got)
}

// tooMany returns the most that was used above what any interval of lines allows.
func (g *ledger) tooMany() (worst int64) {
	var level int64
	for line := int64(0); line <= g.s.Tick; line++ {
		level = max(level-g.d.Refill, 0) + g.used[line]
		worst = max(worst, level-g.d.Permits)
	}
	return worst
}

// In no interval of ticks is more used than a bucket allows, however instances borrow blocks, use them as late as
// possible, return them, and refund.
func TestDecide_BlocksNeverExceedTheLimit(t *testing.T) {
	for seed := range uint64(4_000) {
		random := rand.New(rand.NewPCG(seed, 7))
		d := &Definition{Limits: Limits{Kind: KindTokenBucket, Permits: 1 + random.Int64N(8), Period: 10, Refill: 1 + random.Int64N(3)}, Version: 1}
		g := &ledger{d: d, s: d.InitialState(0), used: map[int64]int64{}, random: random}
		for range 4 + random.IntN(40) {
			g.step()
		}
		require.Zero(t, g.tooMany(), "seed %d, %+v:\n%s", seed, d.Limits, strings.Join(g.said, "\n"))
		require.LessOrEqual(t, g.s.RefundFloor, g.s.Missing)
	}
}

// twins play the same grants twice: once some are refunded, once they never were.
type twins struct {
	d          *Definition
	s, never   State
	random     *rand.Rand
	plain      []plainOf
	overlapped bool // refunds are given though others were since the grant
	refunded   int64
}

func (w *twins) step(t *testing.T) {
	now := w.d.TickTime(w.s.Tick)
	switch w.random.IntN(4) {
	case 0:
		now = w.d.TickTime(w.s.Tick + 1 + w.random.Int64N(2))
		w.s, w.never = w.d.Advance(w.s, now), w.d.Advance(w.never, now)
	case 1, 2:
		granted := []int64{0}
		w.s = w.d.Decide(w.s, now, []Request{{Min: 1, Max: 1 + w.random.Int64N(w.d.Permits)}}, granted)
		if n := granted[0]; n > 0 && w.random.IntN(2) == 0 {
			w.never = w.d.Decide(w.never, now, []Request{{Op: OpCharge, Max: n}}, granted) // it is for good
		} else if n > 0 {
			w.plain = append(w.plain, plainOf{Receipt{w.s.Tick, w.s.Missing}, w.s.Tick, n, w.refunded})
		}
	case 3:
		w.refund(now)
	}
	if !w.overlapped {
		require.GreaterOrEqual(t, w.s.Missing, w.never.Missing, "%+v: %+v against %+v", w.d.Limits, w.s, w.never)
	}
}

func (w *twins) refund(now int64) {
	if len(w.plain) == 0 {
		return
	}
	i := w.random.IntN(len(w.plain))
	p := w.plain[i]
	if !w.overlapped && p.refunded != w.refunded && p.line != w.s.Tick && w.d.Kind == KindTokenBucket {
		return
	}
	w.plain = append(w.plain[:i], w.plain[i+1:]...)
	granted := []int64{0}
	w.s = w.d.Decide(w.s, now, []Request{{Op: OpRefund, Max: p.n, Receipt: p.mark}}, granted)
	w.refunded += granted[0]
}

func kindsOfThree(random *rand.Rand) []Limits {
	permits := 1 + random.Int64N(9)
	return []Limits{
		{Kind: KindTokenBucket, Permits: permits, Period: 10, Refill: 1 + random.Int64N(permits)},
		{Kind: KindFixedWindow, Permits: permits, Period: 10},
		{Kind: KindSlidingWindow, Permits: permits, Period: 10, Segments: 1 + random.Int64N(5)},
	}
}

// What was taken and refunded leaves a key no fuller than if it had never been taken.
func TestDecide_RefundNeverGivesTooMuch(t *testing.T) {
	for seed := range uint64(1_500) {
		random := rand.New(rand.NewPCG(seed, 3))
		for _, l := range kindsOfThree(random) {
			d := &Definition{Limits: l, Version: 1}
			w := &twins{d: d, s: d.InitialState(0), never: d.InitialState(0), random: random}
			for range 30 {
				w.step(t)
			}
		}
	}
}

// The mark of a grant knows nothing of what others have refunded since. Once lines have
// gone by it can be worth more than the grant, by as much as that.
func TestDecide_RefundAfterOtherRefunds(t *testing.T) {
	d := &Definition{Limits: Limits{Kind: KindTokenBucket, Permits: 10, Period: 10, Refill: 1}, Version: 1}
	granted := make([]int64, 2)
	s := d.Decide(d.InitialState(0), 0, []Request{{Min: 5, Max: 5}, {Min: 5, Max: 5}}, granted)
	s = d.Decide(s, 0, []Request{{Op: OpRefund, Max: 5, Receipt: Receipt{0, 5}}}, granted)
	s = d.Decide(s, 50, []Request{{Min: 5, Max: 5}, {Op: OpRefund, Max: 5, Receipt: Receipt{0, 10}}}, granted)
	assert.Equal(t, int64(5), granted[1], "0 would be right: the five lines have paid for the second grant")
	assert.Zero(t, s.Missing, "5 would be right: the third grant is for good")
	for seed := range uint64(1_500) {
		random := rand.New(rand.NewPCG(seed, 5))
		l := kindsOfThree(random)[0]
		d := &Definition{Limits: l, Version: 1}
		w := &twins{d: d, s: d.InitialState(0), never: d.InitialState(0), random: random, overlapped: true}
		for range 30 {
			w.step(t)
			require.GreaterOrEqual(t, w.s.Missing, w.never.Missing-w.refunded)
		}
	}
}

// fullWindow is how long it takes until all is there again.
func fullWindow(l Limits) int64 {
	switch l.Kind {
	case KindTokenBucket:
		return ((l.Permits-1)/l.Refill + 1) * l.Period
	case KindSlidingWindow:
		return l.Segments * l.Period
	}
	return l.Period
}

// atMost is how much is granted in a time at the most: what is there, and what each line
// brings. A clock that steps back may meet one line more than the time has.
func atMost(l Limits, elapsed int64) int64 {
	lines := elapsed/l.Period + 2
	switch l.Kind {
	case KindTokenBucket:
		return l.Permits + lines*l.Refill
	case KindSlidingWindow:
		return l.Permits * (lines/l.Segments + 2)
	}
	return l.Permits * (lines + 1)
}

// The server's clock steps once. No more is granted than the longer of the two times
// brings, and no caller waits for longer than a full window after it.
func TestAdvance_ClockStep(t *testing.T) {
	for seed := range uint64(600) {
		random := rand.New(rand.NewPCG(seed, 11))
		for _, l := range kindsOfThree(random) {
			d := &Definition{Limits: l, Version: 1, Anchor: random.Int64N(100) - 50}
			begin := int64(1000)
			s, now, gone, granted := d.InitialState(begin), begin, int64(0), []int64{0}
			step, stepAt := random.Int64N(800)-400, random.Int64N(100)
			var total int64
			for range 40 {
				by := random.Int64N(8)
				if gone < stepAt && gone+by >= stepAt {
					now += step
				}
				now, gone = now+by, gone+by
				s = d.Decide(s, now, []Request{{Min: 1, Max: l.Permits}}, granted)
				total += max(granted[0], 0)
				require.LessOrEqual(t, d.Wait(s, now, l.Permits), fullWindow(l), "seed %d: %+v after a step of %d: %+v", seed, l, step, s)
				require.LessOrEqual(t, d.FullAt(s)-now, fullWindow(l))
			}
			require.LessOrEqual(t, total, atMost(l, max(gone, now-begin)), "seed %d: %+v after a step of %d", seed, l, step)
		}
	}
}

// A refund of any grant gives back what is missing, at any time, and no block.
func TestAnyGrant(t *testing.T) {
	for seed := range uint64(500) {
		random := rand.New(rand.NewPCG(seed, 13))
		for _, l := range kindsOfThree(random) {
			d := &Definition{Limits: l, Version: 1}
			s, now, granted := d.InitialState(0), int64(0), []int64{0}
			ask := func(r Request) int64 {
				s = d.Decide(s, now, []Request{r}, granted)
				return granted[0]
			}
			for range 20 {
				now += random.Int64N(25)
				ask(Request{Op: OpCharge, Max: random.Int64N(9)})
				ask(Request{Min: 1, Max: random.Int64N(4), Block: random.IntN(3) == 0})
				ask(Request{})
				n, missing, floor := 1+random.Int64N(9), s.Missing, s.RefundFloor
				want := min(n, missing-floor)
				if l.Kind == KindSlidingWindow {
					want = 0
				}
				require.Equal(t, want, ask(Request{Op: OpRefund, Max: n, Receipt: AnyGrant()}), "seed %d: %+v", seed, l)
				require.Equal(t, missing-want, s.Missing)
			}
		}
	}
}

func TestDecide_NoOverflow(t *testing.T) {
	for _, l := range []Limits{
		{Kind: KindTokenBucket, Permits: MaxPermits, Period: MaxPeriod, Refill: 1},
		{Kind: KindTokenBucket, Permits: MaxPermits, Period: 1, Refill: MaxPermits},
		{Kind: KindFixedWindow, Permits: MaxPermits, Period: MaxPeriod},
		{Kind: KindSlidingWindow, Permits: MaxPermits, Period: MaxPeriod / 2, Segments: 2},
	} {
		d := &Definition{Limits: l, Version: 1}
		granted := make([]int64, 3)
		s := d.Decide(d.InitialState(0), 5, []Request{{Op: OpCharge, Max: maxDebt - 1}, {Op: OpCharge, Max: maxDebt}, {Min: 1, Max: 1}}, granted)
		assert.Equal(t, []int64{maxDebt - 1, 1, Rejected}, granted, l)
		assert.Equal(t, int64(maxDebt), s.Missing)
		assert.Positive(t, d.Wait(s, 5, MaxPermits))
		assert.Positive(t, d.FullAt(s))
		far := d.Advance(s, 1<<62)
		assert.GreaterOrEqual(t, far.Missing, int64(0))
		back := d.Decide(s, -1<<61, []Request{{Op: OpRefund, Max: maxDebt, Receipt: Receipt{s.Tick, s.Missing}}, {Min: 0, Max: 0}}, granted)
		assert.GreaterOrEqual(t, back.Missing, int64(0))
	}
}
