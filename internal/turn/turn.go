// Package turn is how package simulate orders what goroutines do at the same instant, so that a run can be repeated. A
// goroutine that has waited, and goes on to something that others use, takes its turn first.
package turn

import (
	"context"
	"sync/atomic"
)

// Runs is how many simulations there are now. Without any, Take does nothing.
var Runs atomic.Int32

// A Taker is the value of a simulated execution in its context, under [Key].
type Taker interface {
	// Take returns when the goroutine has its turn.
	Take()
}

// Key is the key of the Taker in a context.
type Key struct{}

// Take returns when the execution of ctx has its turn. The caller must not hold a lock.
func Take(ctx context.Context) {
	if Runs.Load() == 0 {
		return
	}
	if t, ok := ctx.Value(Key{}).(Taker); ok {
		t.Take()
	}
}
