package pipeline

import (
	"sync"
	"sync/atomic"
	"unsafe"
)

// A tracker counts the executions that run on one version of a pipeline, so that a Reloadable knows when the last one
// has ended on a version that was replaced.
//
// The counter is in shards, each in its own cache line, as in Doug Lea's LongAdder: processors that count in one place
// would spend more time on that than on the pipeline. An execution enters and leaves the same shard, so no shard falls
// below 0, and the sum of all is 0 if and only if no execution runs.
//
// retire sets retired before it sums up the shards, and leave changes its shard before it looks at retired. So one of
// the two sees the other, and drained is closed.
type tracker struct {
	shards  [1 << shardBits]shard
	retired atomic.Bool
	drained chan struct{} // closed when the version is retired and the last execution has ended
	once    sync.Once     // closes drained
}

// A shard is a counter that fills a cache line.
type shard struct {
	n atomic.Int64
	_ [56]byte
}

// shardBits makes 64 shards, so that two goroutines that run at once rarely share one.
const shardBits = 6

func newTracker() *tracker { return &tracker{drained: make(chan struct{})} }

// enter counts an execution. The caller leaves the shard that it returns.
func (t *tracker) enter() *shard {
	s := &t.shards[t.index()]
	s.n.Add(1)
	return s
}

// index returns the index of the shard of this goroutine. Most goroutines that run at once have different ones, and a
// goroutine that calls index again at the same depth of its stack gets the same one.
//
// It is a hash of the address of the stack. Go gives a program neither the number of the goroutine nor that of the
// processor, a random number costs more than the count itself, and a pool, as sync.Pool is, loses what a garbage
// collection frees. If the stack grows, its address changes and leads to another shard. That does no harm: the
// execution leaves the shard that it entered.
func (t *tracker) index() uint64 {
	var here byte
	stack := uint64(uintptr(unsafe.Pointer(&here))) >> 11 // stacks are at least 2 KiB
	return stack * 0x9E3779B97F4A7C15 >> (64 - shardBits)
}

// leave counts that an execution has ended.
func (t *tracker) leave(s *shard) {
	if s.n.Add(-1) == 0 && t.retired.Load() {
		t.closeIfDrained()
	}
}

// retire is called when the version was replaced. An execution that loaded the version before and enters only now
// leaves again at once: see Pipeline.enterCurrent.
func (t *tracker) retire() {
	t.retired.Store(true)
	t.closeIfDrained()
}

func (t *tracker) closeIfDrained() {
	if t.running() == 0 {
		t.once.Do(func() { close(t.drained) })
	}
}

// running returns how many executions run: 0 if t is nil, and does not count.
func (t *tracker) running() int {
	if t == nil {
		return 0
	}
	n := int64(0)
	for i := range t.shards {
		n += t.shards[i].n.Load()
	}
	return int(n)
}
