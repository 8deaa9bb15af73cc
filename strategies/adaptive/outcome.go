package adaptive

import (
	"sync/atomic"

	"github.com/weir-go/weir/limiter"
)

// An outcome is what came of an execution.
type outcome uint8

const (
	success outcome = iota
	failure
	ignored
	undone // ignored, and the grant is as if it had not been
)

// A tracked lease is told what came of its execution, once. A limiter of this
// package makes one for each lease that stands for an execution.
type tracked struct {
	done atomic.Bool
	to   interface{ settle(t *tracked, o outcome) }
	took took // only of a Limiter
}

func (t *tracked) end(o outcome) {
	if t.done.CompareAndSwap(false, true) {
		t.to.settle(t, o)
	}
}

func (t *tracked) succeed() { t.end(success) }
func (t *tracked) undo()    { t.end(undone) }

// The keys by which a tracked lease is found again, through chains and whatever
// else was done with it. A chain keeps one value for each key, so there is one
// for each type: a throttler and a limiter in a chain are both told.
var (
	limiterKey   = limiter.NewMetadataKey[*tracked]("ADAPTIVE_LIMITER")
	throttlerKey = limiter.NewMetadataKey[*tracked]("ADAPTIVE_THROTTLER")
)

// lease makes the lease that stands for t.
func (t *tracked) lease(n int, key limiter.MetadataKey[*tracked]) limiter.Lease {
	return key.With(limiter.GrantedRefundable(n, t.succeed, t.undo), t)
}

// Fail says that the execution which held the lease failed, and releases it. It
// does nothing if the lease was released before; a lease of a limiter that is not
// of this package is just released.
//
// Of the limiters of a chain the first [Limiter] and the first [Throttler] are
// told; a second one of the same type counts a success.
func Fail(l limiter.Lease) { end(l, failure) }

// Ignore releases the lease without anything being learned from its execution:
// the caller went away, or it never began. Otherwise it is like [Fail].
func Ignore(l limiter.Lease) { end(l, ignored) }

func end(l limiter.Lease, o outcome) {
	defer l.Release() // the rest of a chain, also if OnLimitChanged panics
	if t, ok := throttlerKey.From(l); ok {
		t.end(o)
	}
	if t, ok := limiterKey.From(l); ok {
		t.end(o)
	}
}
