package limiter_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/limiter/limitertest"
	"github.com/weir-go/weir/rate"
)

// A script is what is done to a limiter, and to the model of it. Every step makes
// sense wherever it stands, so that steps can be dropped: calls and leases are
// named by a number modulo how many there are, times by the grid as it is then.
type script struct {
	kind   limitertest.Kind
	limits limitertest.Limits
	steps  []step
}

type op uint8

const (
	opTry         op = iota // TryAcquire(n)
	opPeek                  // Peek(n)
	opTryDone               // TryAcquire(n) with a context that is done
	opAcquire               // Acquire(n) in a goroutine
	opAcquireDone           // Acquire(n) with a context that is done
	opBurst                 // Acquire(1) n times
	opCancel                // cancel the n-th waiter
	opAdvance               // n eighths of the time between two grid lines
	opToLine                // to the n-th next grid line, off nanoseconds later
	opRelease               // release the n-th lease, whether it was before or not
	opRefund                // refund the n-th lease, if it was neither released nor refunded
	opReconfigure           // to limits
	opLook                  // compare statistics, idle duration and the like
	opCharge                // Charge(n)
	opClose
	opLate // n eighths of the time between two grid lines, after which the queue's timer has not fired yet
)

type step struct {
	op     op
	n, off int
	limits limitertest.Limits
}

func (s step) String() string {
	switch s.op {
	case opTry:
		return fmt.Sprintf("TryAcquire(%d)", s.n)
	case opPeek:
		return fmt.Sprintf("Peek(%d)", s.n)
	case opCharge:
		return fmt.Sprintf("Charge(%d)", s.n)
	case opTryDone:
		return fmt.Sprintf("TryAcquire(done, %d)", s.n)
	case opAcquire:
		return fmt.Sprintf("go Acquire(%d)", s.n)
	case opAcquireDone:
		return fmt.Sprintf("Acquire(done, %d)", s.n)
	case opBurst:
		return fmt.Sprintf("%d times go Acquire(1)", s.n)
	case opCancel:
		return fmt.Sprintf("cancel waiter %d", s.n)
	case opAdvance:
		return fmt.Sprintf("sleep %d/8 of a step", s.n)
	case opToLine:
		return fmt.Sprintf("sleep to grid line +%d and %dns", s.n, s.off)
	case opRelease:
		return fmt.Sprintf("release lease %d", s.n)
	case opRefund:
		return fmt.Sprintf("refund lease %d", s.n)
	case opReconfigure:
		return fmt.Sprintf("Reconfigure(%+v)", s.limits)
	case opLook:
		return "look"
	case opLate:
		return fmt.Sprintf("sleep %d/8 of a step, the timer is late", s.n)
	}
	return "Close()"
}

func (s script) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%v %+v\n", s.kind, s.limits)
	for _, st := range s.steps {
		fmt.Fprintf(&b, "  %v\n", st)
	}
	return b.String()
}

// A source makes the choices of a script: a random one, or the bytes of a fuzzer.
type source interface {
	intN(n int) int // 0 <= intN(n) < n; 0 when the source has run dry
	dry() bool
}

type randomSource struct {
	*rand.Rand
	steps int
}

func (r *randomSource) intN(n int) int { return r.IntN(n) }
func (r *randomSource) dry() bool      { r.steps--; return r.steps < 0 }

type byteSource struct{ data []byte }

func (b *byteSource) dry() bool { return len(b.data) == 0 }
func (b *byteSource) intN(n int) int {
	if b.dry() {
		return 0
	}
	v := int(b.data[0])
	b.data = b.data[1:]
	return v % n
}

// maxSteps keeps a fuzzer's scripts short.
const maxSteps = 120

// generate makes a script of what src says.
func generate(k limitertest.Kind, src source) script {
	s := script{kind: k, limits: someLimits(k, src)}
	limits := s.limits
	for !src.dry() && len(s.steps) < maxSteps {
		st := someStep(src, limits)
		if st.op == opReconfigure {
			st.limits = otherLimits(k, src, limits)
			if usable(k, st.limits) {
				limits = st.limits
			}
		}
		s.steps = append(s.steps, st)
	}
	return s
}

func someStep(src source, l limitertest.Limits) step {
	if l.QueueLimit > 60 && src.intN(5) == 0 { // more than 64 waiters are a case of their own
		return step{op: opBurst, n: 10 + src.intN(40)}
	}
	n := src.intN(l.Permits + 1)
	switch c := src.intN(132); {
	case c >= 124:
		return step{op: opRefund, n: src.intN(16)}
	case c >= 116:
		return step{op: opCharge, n: src.intN(2*l.Permits+5) - l.Permits - 2}
	case c >= 112:
		return step{op: opCharge}
	case c >= 110:
		return step{op: opPeek, n: []int{-1, l.Permits + 1}[c-110]}
	case c >= 100:
		return step{op: opPeek, n: n}
	case c < 18:
		return step{op: opTry, n: n}
	case c < 42:
		return step{op: opAcquire, n: n}
	case c < 44:
		return step{op: opAcquire, n: []int{-1, l.Permits + 1, math.MaxInt/2 + 1}[src.intN(3)]}
	case c < 46:
		return step{op: opTry, n: []int{-1, l.Permits + 1, math.MaxInt/2 + 1}[src.intN(3)]}
	case c < 47:
		return step{op: opTryDone, n: src.intN(l.Permits+3) - 1}
	case c < 48:
		return step{op: opAcquireDone, n: src.intN(l.Permits+3) - 1}
	case c < 56:
		return step{op: opCancel, n: src.intN(8)}
	case c < 60:
		return step{op: opAdvance, n: 1 + src.intN(30)}
	case c < 66:
		return step{op: opLate, n: 1 + src.intN(60)}
	case c < 67:
		return step{op: opAdvance, n: 3001 + 1001*src.intN(8)}
	case c < 79:
		return step{op: opToLine, n: 1 + src.intN(3), off: src.intN(3) - 1}
	case c < 85:
		return step{op: opRelease, n: src.intN(16)}
	case c < 91:
		return step{op: opReconfigure}
	case c < 97 && src.intN(6) == 0:
		return step{op: opClose}
	}
	return step{op: opLook}
}

// steps between two grid lines that scripts use: some are unusual, and some are no
// multiples of others.
var gridSteps = []time.Duration{10 * time.Millisecond, time.Millisecond, 7, 1, 2, 3 * time.Second, 333_333_333}

func someLimits(k limitertest.Kind, src source) limitertest.Limits {
	l := limitertest.Limits{
		Permits:         1 + src.intN(7),
		TokensPerPeriod: 1 + src.intN(8),
		Segments:        1 + src.intN(5),
		QueueLimit:      src.intN(14),
		Order:           limiter.QueueOrder(src.intN(2)),
	}
	switch src.intN(12) {
	case 0:
		l.Permits = 30
	case 1:
		l.QueueLimit = 300
	}
	setStep(k, &l, gridSteps[src.intN(len(gridSteps))])
	return l
}

func setStep(k limitertest.Kind, l *limitertest.Limits, d time.Duration) {
	l.Period = d
	if k == limitertest.SlidingWindow {
		l.Period = d * time.Duration(l.Segments)
	}
}

// otherLimits changes something of l, now and then to what is invalid.
func otherLimits(k limitertest.Kind, src source, l limitertest.Limits) limitertest.Limits {
	segment := l.Step(k)
	if src.intN(2) == 0 {
		l.Permits = 1 + src.intN(8)
	}
	if src.intN(3) == 0 {
		l.TokensPerPeriod = 1 + src.intN(8)
	}
	if src.intN(3) == 0 {
		l.QueueLimit = src.intN(14)
	}
	if src.intN(4) == 0 {
		l.Order = 1 - l.Order
	}
	if src.intN(4) == 0 {
		l.Segments = 1 + src.intN(5)
		setStep(k, &l, segment)
	}
	if src.intN(4) == 0 {
		setStep(k, &l, otherStep(src, segment))
	}
	switch src.intN(30) {
	case 0:
		l.Permits = 0
	case 1:
		l.QueueLimit = -1
	}
	return l
}

// otherStep is often a simple fraction or multiple of the old, so that old and
// new grid lines meet.
func otherStep(src source, d time.Duration) time.Duration {
	switch src.intN(6) {
	case 0:
		return d * 2
	case 1:
		return max(1, d/2)
	case 2:
		return max(1, d/3)
	case 3:
		return d + 1
	}
	return gridSteps[src.intN(len(gridSteps))]
}

// usable reports whether a limiter accepts these limits.
func usable(k limitertest.Kind, l limitertest.Limits) bool { return rate.Of(l.Of(k)).Validate() == nil }
