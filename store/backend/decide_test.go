package backend

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/rate"
)

// A ledger plays the part of all who take from one bucket: those who use what they take
// at once, those who give it back unused, and those who borrow a block and use it bit by bit.
type ledger struct {
	d      *Definition
	s      rate.State
	used   map[int64]int64 // by line
	loans  []*loanOf
	plain  []plainOf
	random *rand.Rand
	said   []string
}

// A loanOf is a block: the positions (next, top] of it are unused.
type loanOf struct {
	receipt   rate.Receipt
	next, top int64
}

// A plainOf is a grant that may be given back unused.
type plainOf struct {
	receipt rate.Receipt
	n       int64
}

func (g *ledger) say(format string, a ...any) {
	g.said = append(g.said, fmt.Sprintf("line %d: %s -> missing %d held %d", g.s.Line, fmt.Sprintf(format, a...), g.s.Missing, g.s.Floor))
}

func (g *ledger) ask(a Request) int64 {
	granted := []int64{0}
	g.d.Decide(&g.s, g.d.TimeOf(g.s.Line), []Request{a}, granted)
	return granted[0]
}

func (g *ledger) step() {
	n := 1 + g.random.Int64N(g.d.Permits)
	switch g.random.IntN(8) {
	case 0, 1:
		g.d.AdvanceTo(&g.s, g.s.Line+1+g.random.Int64N(3))
		g.say("time")
	case 2:
		if got := g.ask(Request{Min: 1, Max: n}); got > 0 {
			g.plain = append(g.plain, plainOf{g.d.Receipt(&g.s), got})
			g.used[g.s.Line] += got
			g.say("take %d", got)
		}
	case 3:
		if got := g.ask(Request{Min: 1, Max: n, Block: true}); got > 0 {
			g.loans = append(g.loans, &loanOf{g.d.Receipt(&g.s), g.s.Missing - got, g.s.Missing})
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
	l.next = max(l.next, (g.s.Line-l.receipt.Line)*g.d.Refill)
	return l, i
}

func (g *ledger) useLoan() {
	l, _ := g.pick()
	if l == nil || l.next >= l.top {
		return
	}
	n := 1 + g.random.Int64N(l.top-l.next)
	l.next += n
	g.used[g.s.Line] += n
	g.say("use %d of %+v", n, l.receipt)
}

func (g *ledger) returnLoan() {
	l, i := g.pick()
	if l == nil || l.next >= l.top {
		return
	}
	got := g.ask(Request{Op: OpReturnBlock, Max: l.top - l.next, Receipt: l.receipt})
	g.say("return %d of %+v: %d", l.top-l.next, l.receipt, got)
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
	g.plain = append(g.plain[:i], g.plain[i+1:]...)
	g.used[p.receipt.Line] -= p.n
	got := g.ask(Request{Op: OpRefund, Max: p.n, Receipt: p.receipt})
	g.say("refund %d of %+v: %d", p.n, p.receipt, got)
}

// tooMany returns the most that was used above what any interval of lines allows.
func (g *ledger) tooMany() (worst int64) {
	var level int64
	for line := int64(0); line <= g.s.Line; line++ {
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
		d := NewDefinition("it", rate.Schedule{Kind: rate.TokenBucket, Permits: 1 + random.Int64N(8), Period: 10, Refill: 1 + random.Int64N(3)}, 0)
		g := &ledger{d: d, s: d.Full(0), used: map[int64]int64{}, random: random}
		for range 4 + random.IntN(40) {
			g.step()
		}
		require.Zero(t, g.tooMany(), "seed %d, %+v:\n%s", seed, d.Schedule, strings.Join(g.said, "\n"))
		require.LessOrEqual(t, g.s.Floor, g.s.Missing)
	}
}

func kindsOfThree(random *rand.Rand) []rate.Schedule {
	permits := 1 + random.Int64N(9)
	return []rate.Schedule{
		{Kind: rate.TokenBucket, Permits: permits, Period: 10, Refill: 1 + random.Int64N(permits)},
		{Kind: rate.FixedWindow, Permits: permits, Period: 10},
		{Kind: rate.SlidingWindow, Permits: permits, Period: 10, Segments: 1 + random.Int64N(5)},
	}
}

// fullWindow is how long it takes until all is there again.
func fullWindow(l rate.Schedule) int64 {
	switch l.Kind {
	case rate.TokenBucket:
		return ((l.Permits-1)/l.Refill + 1) * l.Period
	case rate.SlidingWindow:
		return l.Segments * l.Period
	}
	return l.Period
}

// atMost is how much is granted in a time at the most: what is there, and what each line
// brings. A clock that steps back may meet one line more than the time has.
func atMost(l rate.Schedule, elapsed int64) int64 {
	lines := elapsed/l.Period + 2
	switch l.Kind {
	case rate.TokenBucket:
		return l.Permits + lines*l.Refill
	case rate.SlidingWindow:
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
			d := NewDefinition("it", l, random.Int64N(100)-50)
			begin := int64(1000)
			s, now, gone, granted := d.Full(begin), begin, int64(0), []int64{0}
			step, stepAt := random.Int64N(800)-400, random.Int64N(100)
			var total int64
			for range 40 {
				by := random.Int64N(8)
				if gone < stepAt && gone+by >= stepAt {
					now += step
				}
				now, gone = now+by, gone+by
				d.Decide(&s, now, []Request{{Min: 1, Max: l.Permits}}, granted)
				total += max(granted[0], 0)
				require.LessOrEqual(t, d.Wait(&s, now, l.Permits), fullWindow(l), "seed %d: %+v after a step of %d: %+v", seed, l, step, s)
				require.LessOrEqual(t, d.FullAt(&s)-now, fullWindow(l))
			}
			require.LessOrEqual(t, total, atMost(l, max(gone, now-begin)), "seed %d: %+v after a step of %d", seed, l, step)
		}
	}
}

func TestDecide_NoOverflow(t *testing.T) {
	for _, l := range []rate.Schedule{
		{Kind: rate.TokenBucket, Permits: MaxPermits, Period: MaxPeriod, Refill: 1},
		{Kind: rate.TokenBucket, Permits: MaxPermits, Period: 1, Refill: MaxPermits},
		{Kind: rate.FixedWindow, Permits: MaxPermits, Period: MaxPeriod},
		{Kind: rate.SlidingWindow, Permits: MaxPermits, Period: MaxPeriod / 2, Segments: 2},
	} {
		d := NewDefinition("it", l, 0)
		const most = rate.MaxDebt
		granted := make([]int64, 3)
		s := d.Full(5)
		d.Decide(&s, 5, []Request{{Op: OpCharge, Max: most - 1}, {Op: OpCharge, Max: most}, {Min: 1, Max: 1}}, granted)
		assert.Equal(t, []int64{most - 1, 1, Rejected}, granted, l)
		assert.Equal(t, int64(most), s.Missing)
		assert.Positive(t, d.Wait(&s, 5, MaxPermits))
		assert.Positive(t, d.FullAt(&s))
		assert.GreaterOrEqual(t, d.Advanced(s, 1<<62).Missing, int64(0))
		for range 3 {
			d.Decide(&s, -1<<61, []Request{{Op: OpRefund, Max: most, Receipt: d.Receipt(&s)}, {Op: OpCharge, Max: most}, {}}, granted)
			assert.GreaterOrEqual(t, s.Missing, int64(0))
			assert.LessOrEqual(t, s.Missing+s.Refunded, int64(2*most))
			assert.Greater(t, d.FullAt(&s), int64(-1<<61))
		}
	}
}
