package timeout

import "sync/atomic"

// A donePredictor predicts whether an execution will call Done of its context, from whether the executions before it
// did. The strategy makes one of two contexts, and which one is cheaper depends on that:
//
//   - A [deadline.Context] costs one small allocation and no timer, but if Done is called it makes a context of the
//     standard library after all, and costs more than that one alone.
//   - A context of the standard library has its timer from the start, and costs more if Done is not called.
//
// Most callbacks always call Done, as one that sends an HTTP request does, or never. So every execution with a
// deadline.Context is a test. If it calls Done, the next executions get a standard context: 1 after the first such
// test, 2 after the second in a row, then 4, and so on up to 64. Then comes the next test. A test that does not call
// Done sets the number back. Both contexts behave the same, so a wrong prediction costs time and nothing else.
type donePredictor struct {
	untilTest atomic.Int32 // how many executions come before the next test
	interval  atomic.Int32 // what untilTest was after the last test
}

const longestInterval = 64

// predictsDone reports whether the next execution is expected to call Done. If it returns false, the execution is a test.
func (p *donePredictor) predictsDone() bool {
	return p.untilTest.Load() > 0 && p.untilTest.Add(-1) >= 0
}

// learn takes the result of a test: whether Done was called.
func (p *donePredictor) learn(called bool) {
	if !called {
		if p.interval.Load() != 0 {
			p.interval.Store(0)
		}
		return
	}
	interval := min(max(2*p.interval.Load(), 1), longestInterval)
	p.interval.Store(interval)
	p.untilTest.Store(interval)
}
