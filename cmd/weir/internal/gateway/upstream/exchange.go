package upstream

import (
	"context"
	"slices"
	"sync"
)

// An Exchange is what the attempts of one request have in common. The context of the request returns it for [Key]. The
// zero value is ready to use.
type Exchange struct {
	mu       sync.Mutex
	attempts int
	address  string     // of the last attempt
	tried    []*Address // by all attempts
	held     []*Address // that count the request until End
	over     bool
}

// Key is the key of the [*Exchange] in the context of a request.
type Key struct{}

// exchangeOf returns the Exchange of the request, or nil.
func exchangeOf(ctx context.Context) *Exchange {
	x, _ := ctx.Value(Key{}).(*Exchange)
	return x
}

// Attempts returns how many times the request was sent or could not be sent because there was no connection, and the
// address of the last time.
func (x *Exchange) Attempts() (n int, address string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.attempts, x.address
}

// End says that the request is answered: it no longer counts as running at any address.
func (x *Exchange) End() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.over = true
	for _, a := range x.held {
		a.running.Add(-1)
	}
	x.held = nil
}

func (x *Exchange) triedBefore() []*Address {
	if x == nil {
		return nil
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	return slices.Clone(x.tried)
}

func (x *Exchange) begin(a *Address) {
	if x == nil {
		return
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.attempts++
	x.address = a.name
	x.tried = append(x.tried, a)
}

// hold counts the request at a until End. The attempt of a hedge can return after that.
func (x *Exchange) hold(a *Address) {
	if x != nil {
		x.mu.Lock()
		defer x.mu.Unlock()
		if !x.over {
			x.held = append(x.held, a)
			return
		}
	}
	a.running.Add(-1)
}
