package limiter

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
)

// A plainWindow is a sliding window as simply as it can be written, without a queue: a list of segments that every
// question walks. It knows refunds and adjustments, which the model in package naive does not, and is quick enough
// for windows of many segments.
type plainWindow struct {
	limit, period, segments int64
	line                    int64 // of the current segment
	taken                   []plainSegment
	idleSince               int64 // if nothing is taken
	cuts                    []windowCut
}

type plainSegment struct{ line, permits int64 }

func (p *plainWindow) used() (sum int64) {
	for _, s := range p.taken {
		sum += s.permits
	}
	return sum
}

func (p *plainWindow) advance(now int64) {
	p.line += (now - p.line) / p.period * p.period
	p.leave()
}

// leave forgets what is not in the window.
func (p *plainWindow) leave() {
	for len(p.taken) > 0 && p.line-p.taken[0].line >= p.segments*p.period {
		if p.taken[0].permits > 0 {
			p.idleSince = p.taken[0].line + p.segments*p.period
		}
		p.taken = p.taken[1:]
	}
}

func (p *plainWindow) take(n int64) {
	if last := len(p.taken) - 1; last >= 0 && p.taken[last].line == p.line {
		p.taken[last].permits += n
		return
	}
	p.taken = append(p.taken, plainSegment{p.line, n})
}

// giveBack gives back up to n permits of a lease.
func (p *plainWindow) giveBack(n int64, of *plainLease) {
	for i, s := range p.taken {
		if s.line == of.line {
			n = min(n, s.permits, p.left(of))
			if n > 0 {
				p.taken[i].permits -= n
				p.idleSince = p.line
			}
			for i, c := range p.cuts {
				if c.line == of.line && c.number > of.cuts {
					p.cuts[i].left -= n
				}
			}
		}
	}
}

// left returns how much cuts leave of what a lease can give back.
func (p *plainWindow) left(of *plainLease) int64 {
	left := int64(never)
	for _, c := range p.cuts {
		if c.line == of.line && c.number > of.cuts {
			left = max(min(left, c.left), 0)
		}
	}
	return left
}

// giveBackUnleased gives back up to n permits: what is above the limit from the newest segments, and then from the oldest
// ones. It notes the cut if the current segment had some.
func (p *plainWindow) giveBackUnleased(n int64) {
	owed := max(min(n, p.used()-p.limit), 0)
	n = max(n-owed, 0)
	cut := false
	from := func(s *plainSegment, n *int64) {
		back := min(*n, s.permits)
		if back == 0 {
			return
		}
		s.permits -= back
		*n -= back
		p.idleSince = p.line
		cut = cut || s.line == p.line
	}
	for i := range p.taken {
		from(&p.taken[len(p.taken)-1-i], &owed)
	}
	for i := range p.taken {
		from(&p.taken[i], &n)
	}
	if cut {
		last := p.taken[len(p.taken)-1]
		p.cuts = append(p.cuts, windowCut{line: last.line, number: int64(len(p.cuts) + 1), left: last.permits})
	}
}

// cutsNow returns how many cuts there are of the current segment.
func (p *plainWindow) cutsNow() (n int) {
	for _, c := range p.cuts {
		if c.line == p.line {
			n++
		}
	}
	return n
}

// level is the level.
func (p *plainWindow) level(now int64) Level {
	l := Level{Remaining: p.limit - p.used()}
	for _, s := range p.taken {
		if s.permits > 0 {
			l.Full = time.Duration(s.line + p.segments*p.period - now)
		}
	}
	return l
}

// retryAfter is 0 if n permits are free.
func (p *plainWindow) retryAfter(now, n int64) int64 {
	over := p.used() - (p.limit - n)
	if over <= 0 {
		return 0
	}
	for _, s := range p.taken {
		if over -= s.permits; over <= 0 {
			return s.line + p.segments*p.period - now
		}
	}
	panic("not reached: all permits are more than enough")
}

// regrid moves what was taken in a segment to the new one that contains the last instant of the old one.
func (p *plainWindow) regrid(now, period, segments int64) {
	line, last := p.line, now
	if now-p.line >= period {
		line, last = now, now-1
	}
	old, wasIdle, idleSince := p.taken, p.used() == 0, p.idleSince
	oldLine, oldPeriod := p.line, p.period
	p.taken, p.period, p.segments = nil, period, segments
	for _, s := range old {
		instant := s.line + oldPeriod - 1
		if s.line == oldLine {
			instant = last
		}
		p.line = line
		for p.line > instant {
			p.line -= period
		}
		p.take(s.permits)
	}
	p.line = line
	p.leave()
	if p.idleSince = now; wasIdle {
		p.idleSince = idleSince
	}
}

// A plainLease is a lease of a plainWindow.
type plainLease struct {
	lease Lease
	line  int64 // the segment it is charged to
	n     int64
	held  int64 // of n, what may still be in the window; see windowCharge
	cuts  int64 // how many cuts there were at the grant
}

// compareWithPlain does what choose says to a sliding window and to a plainWindow. choose returns a number from 0 to
// n-1; more is false when it has no more to say.
func compareWithPlain(t *testing.T, choose func(n int) int, more func() bool) {
	start := time.Now()
	now := func() int64 { return int64(time.Since(start)) }
	segments := []int{1, 2, 5, 60, 300, 700, 1000}[choose(7)]
	p := &plainWindow{limit: int64(1 + choose(9)*segments), period: int64(1 + choose(50)), segments: int64(segments)}
	options := func() SlidingWindowOptions {
		return SlidingWindowOptions{
			PermitLimit: int(p.limit), Window: time.Duration(p.period * p.segments), SegmentsPerWindow: int(p.segments),
		}
	}
	l := weir.Must(NewSlidingWindow(options()))
	var leases []plainLease
	var steps strings.Builder
	fmt.Fprintf(&steps, "%+v:", options())
	try := func(n int64) {
		lease, err := l.TryAcquire(t.Context(), int(n))
		require.NoError(t, err, steps.String())
		want := p.retryAfter(now(), n)
		d, _ := lease.RetryAfter()
		require.Equal(t, want, int64(d), "RetryAfter for %d after %s", n, &steps)
		require.Equal(t, want == 0, lease.Acquired(), steps.String())
		if lease.Acquired() {
			p.take(n)
			leases = append(leases, plainLease{lease, p.line, n, n, int64(len(p.cuts))})
		}
	}
	inWindow := func(line int64) bool { return p.line-line < p.segments*p.period }
	sleep := func(d int64) {
		time.Sleep(time.Duration(d))
		p.advance(now())
	}
	for more() {
		kind := choose(36)
		fmt.Fprintf(&steps, " %d", kind)
		switch {
		case kind < 12:
			try(1 + int64(choose(int(min(p.limit, 5)))))
		case kind < 14: // a permit in each of many segments
			for range 1 + 2*choose(255) {
				sleep(p.period)
				try(1)
			}
		case kind < 20:
			sleep(int64(choose(int(3 * p.period))))
		case kind < 21:
			sleep(p.period * int64(choose(255)*segments) / 200)
		case kind < 23 && len(leases) > 0:
			i := choose(len(leases))
			held := leases[i]
			leases = append(leases[:i], leases[i+1:]...)
			held.lease.Refund()
			if inWindow(held.line) {
				p.giveBack(min(held.n, held.held), &held)
			}
		case kind < 26 && len(leases) > 0:
			held := &leases[choose(len(leases))]
			cost := int64(choose(8))
			if !inWindow(held.line) {
				held.held = 0
			}
			held.held = min(held.held, p.left(held))
			switch {
			case cost < held.n:
				back := min(held.n-cost, held.held)
				p.giveBack(back, held)
				held.held -= back
			default:
				if held.held == 0 {
					held.line, held.cuts = p.line, int64(len(p.cuts))
				}
				p.take(cost - held.n)
				held.held += cost - held.n
			}
			adjusted, ok := held.lease.Adjust(int(cost))
			require.True(t, ok)
			held.lease, held.n = adjusted, cost
		case kind < 27:
			p.limit = int64(1 + choose(9)*segments)
			require.NoError(t, l.Reconfigure(options()))
		case kind < 28:
			p.regrid(now(), int64(1+choose(50)), min(int64(1+choose(255)*segments/100), 1000))
			require.NoError(t, l.Reconfigure(options()))
			leases, p.cuts = nil, nil // what becomes of their refunds is tested elsewhere
		case kind >= 32:
			n := int64(choose(10)) - 6
			if n < 0 && p.cutsNow() == maxCuts {
				n = 0 // another cut would not be exact
			} else if n > 0 {
				p.take(n)
			}
			p.giveBackUnleased(-n)
			level, err := l.Charge(t.Context(), int(n))
			require.NoError(t, err)
			require.Equal(t, p.level(now()), level, "Charge(%d) after %s", n, &steps)
		default:
			try(1 + int64(choose(int(p.limit))))
		}
		s := l.Statistics()
		require.Equal(t, max(p.limit-p.used(), 0), s.AvailablePermits, steps.String())
		idle, ok := l.IdleDuration()
		require.Equal(t, p.used() == 0, ok, steps.String())
		if ok {
			require.Equal(t, now()-p.idleSince, int64(idle), steps.String())
		}
		require.LessOrEqual(t, int(l.past.count), int(p.segments)-min(int(p.segments), 1))
	}
}

func TestSlidingWindow_IsAPlainWindow(t *testing.T) {
	seeds := uint64(50)
	if testing.Short() {
		seeds = 15
	}
	for seed := range seeds {
		synctest.Test(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 5))
			steps := 300
			compareWithPlain(t, r.IntN, func() bool { steps--; return steps >= 0 })
		})
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

func FuzzSlidingWindow_IsAPlainWindow(f *testing.F) {
	f.Add([]byte("\x05\x03\x07" + "\x0c\xf0\x0c\xf0\x1f\x80\x15\x02\x0c\xf0\x1b\x10\x50\x1f\x20"))
	f.Add([]byte("\x03\x01\x01" + "\x0c\x3b\x16\x01\x16\x00\x1f\x05\x14\xff\x00\x01"))
	f.Fuzz(func(t *testing.T, data []byte) {
		data = data[:min(len(data), 200)]
		choose := func(n int) int {
			if len(data) == 0 {
				return 0
			}
			b := int(data[0])
			data = data[1:]
			return b % n
		}
		synctest.Test(t, func(t *testing.T) { compareWithPlain(t, choose, func() bool { return len(data) > 0 }) })
	})
}
