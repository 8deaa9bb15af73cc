package adaptive

import (
	"sync/atomic"

	"github.com/weir-go/weir/limiter"
)

// An outcome says how an execution counts.
type outcome uint8

const (
	success outcome = iota
	failure
	ignored
	undone // ignored, and the grant does not count either
)

// A tracked is what a limiter of this package attaches to each lease of an execution. The first outcome that it gets
// counts.
type tracked struct {
	done atomic.Bool
	to   interface{ settle(t *tracked, o outcome) } // the limiter

	// Of a Limiter:
	permits limiter.Lease
	samples samples
}

// end hands the first outcome to the limiter.
func (t *tracked) end(o outcome) {
	if t.done.CompareAndSwap(false, true) {
		t.to.settle(t, o)
	}
}

func (t *tracked) succeed() { t.end(success) }
func (t *tracked) undo()    { t.end(undone) }

// The keys by which Fail and Ignore find the tracked of a lease, also of a chain's. A chain keeps one value for each key.
// So each type of limiter has its key, and a throttler and a limiter in one chain both learn.
var (
	limiterKey   = limiter.NewMetadataKey[*tracked]("ADAPTIVE_LIMITER")
	throttlerKey = limiter.NewMetadataKey[*tracked]("ADAPTIVE_THROTTLER")
)

// lease makes the lease of t.
func (t *tracked) lease(n int, key limiter.MetadataKey[*tracked]) limiter.Lease {
	return key.With(limiter.GrantedRefundable(n, t.succeed, t.undo), t)
}

// Fail records that the execution which held the lease failed, and releases the lease. If the lease was released before,
// it does nothing. It releases a lease of a limiter that is not of this package without recording anything.
//
// Of the limiters of a chain the first [Limiter] and the first [Throttler] record the failure; a second one of the same
// type counts a success.
func Fail(l limiter.Lease) { end(l, failure) }

// Ignore releases the lease, and the limiter does not learn from its execution: the caller gave up, or it never began.
// Otherwise it is like [Fail].
func Ignore(l limiter.Lease) { end(l, ignored) }

// end hands o to the limiters of l, and releases l.
func end(l limiter.Lease, o outcome) {
	defer l.Release() // the other leases of a chain, also if OnLimitChanged panics
	if t, ok := throttlerKey.From(l); ok {
		t.end(o)
	}
	if t, ok := limiterKey.From(l); ok {
		t.end(o)
	}
}
