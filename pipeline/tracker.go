package pipeline

import (
	"math/bits"
	"runtime"
	"sync"
	"sync/atomic"
	"unsafe"
)

// A tracker counts the executions that run on one version of a pipeline, so that
// whoever replaced it knows when the last one has ended.
//
// It is a counter in parts, each in a cache line of its own: processors that
// counted in one place would spend more time on that than on the pipeline. Doug
// Lea's LongAdder is the model.
type tracker struct {
	parts   []part
	shift   uint
	retired atomic.Bool
	drained chan struct{} // closed when the version is retired and the last one has left
	once    sync.Once
}

// A part is entered and left by the same execution, so it never falls below 0,
// and what it says is true for itself.
type part struct {
	n atomic.Int64
	_ [56]byte
}

// Two goroutines that run at once should rarely have the same part.
const (
	partsEach = 8 // for each processor
	mostParts = 64
)

func newTracker() *tracker {
	n := 1
	for n < partsEach*runtime.GOMAXPROCS(0) && n < mostParts {
		n *= 2
	}
	return &tracker{
		parts:   make([]part, n),
		shift:   uint(64 - bits.Len(uint(n-1))), //nolint:gosec // between 59 and 64
		drained: make(chan struct{}),
	}
}

// enter counts an execution. The part that it returns is to be left.
func (t *tracker) enter() *part {
	p := &t.parts[t.place()]
	p.n.Add(1)
	return p
}

// place picks a part by where the goroutine's stack is: the same one each time for
// a goroutine that does nothing else, and different ones for most that run at once.
func (t *tracker) place() uint64 {
	var here byte
	stack := uint64(uintptr(unsafe.Pointer(&here))) >> 11 // stacks are at least 2 KiB
	return stack * 0x9E3779B97F4A7C15 >> t.shift
}

func (t *tracker) leave(p *part) {
	// Whoever retires sets the flag before looking at the parts, and this changes
	// its part before looking at the flag: one of the two sees the other.
	if p.n.Add(-1) == 0 && t.retired.Load() {
		t.finish()
	}
}

// retire is called when nobody finds the version any more. Who found it before
// and enters only now leaves again at once.
func (t *tracker) retire() {
	t.retired.Store(true)
	t.finish()
}

// finish closes drained if nobody is left.
func (t *tracker) finish() {
	if t.running() == 0 {
		t.once.Do(func() { close(t.drained) })
	}
}

func (t *tracker) running() int {
	n := int64(0)
	for i := range t.parts {
		n += t.parts[i].n.Load()
	}
	return int(n)
}
