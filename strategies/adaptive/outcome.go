package adaptive

import (
	"sync/atomic"

	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/limiter/custom"
	"github.com/weir-go/weir/strategies/internal/learning"
)

// A grant is what a limiter of this package attaches to the lease of an execution. The first outcome that it gets counts.
type grant struct {
	done atomic.Bool
	by   interface {
		settle(g *grant, o learning.Outcome)
	} // the limiter

	// Of a Limiter:
	permits limiter.Lease
	samples samples
	learned bool // the engine has learned from the execution; the permits are still in use
}

// settle hands the first outcome to the limiter.
func (g *grant) settle(o learning.Outcome) {
	if g.done.CompareAndSwap(false, true) {
		g.by.settle(g, o)
	}
}

// learn hands the outcome to the limiter, and leaves permits that are lent to the Release of the lease. Nothing else may
// use the lease meanwhile.
func (g *grant) learn(o learning.Outcome) {
	if l, ok := g.by.(*Limiter); !ok {
		g.settle(o) // a throttler lends nothing
	} else if !g.learned {
		l.learn(g, o)
	}
}

// Release, Refund, Succeeded and Lends implement [custom.Owner].
func (g *grant) Release(int, int64)   { g.settle(learning.Success) }
func (g *grant) Refund(int, int64)    { g.settle(learning.Refunded) }
func (g *grant) Succeeded(int, int64) { g.learn(learning.Success) }
func (g *grant) Lends() bool          { return g.permits.Acquired() }

// The keys by which Fail and Ignore find the grant of a lease, also of a chain's. A chain keeps one value for each key.
// So each type of limiter has its key, and a throttler and a limiter in one chain both learn.
var (
	limiterKey   = limiter.NewMetadataKey[*grant]("ADAPTIVE_LIMITER")
	throttlerKey = limiter.NewMetadataKey[*grant]("ADAPTIVE_THROTTLER")
)

// lease makes the lease of g.
func (g *grant) lease(n int, key limiter.MetadataKey[*grant]) limiter.Lease {
	return key.With(custom.GrantedBy(g, n, 0), g)
}

// Fail records that the execution which held the lease failed, and releases the lease. If the lease was released before,
// it does nothing. It releases a lease of a limiter that is not of this package without recording anything.
//
// Of the limiters of a chain the first [Limiter] and the first [Throttler] record the failure; a second one of the same
// type counts a success.
func Fail(l limiter.Lease) { settle(l, learning.Failure) }

// Ignore releases the lease, and the limiter does not learn from its execution: the caller gave up, or it never began.
// Otherwise it is like [Fail].
func Ignore(l limiter.Lease) { settle(l, learning.Ignored) }

// learn hands o to the limiters of l, and leaves the permits to the Release of l. Nothing else may use l meanwhile.
func learn(l limiter.Lease, o learning.Outcome) {
	if g, ok := throttlerKey.From(l); ok {
		g.learn(o)
	}
	if g, ok := limiterKey.From(l); ok {
		g.learn(o)
	}
	l.Succeeded() // the others, which learn nothing of o
}

// settle hands o to the limiters of l, and releases l.
func settle(l limiter.Lease, o learning.Outcome) {
	defer l.Release() // the other leases of a chain, also if OnLimitChanged panics
	if g, ok := throttlerKey.From(l); ok {
		g.settle(o)
	}
	if g, ok := limiterKey.From(l); ok {
		g.settle(o)
	}
}
