package bench

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/puzpuzpuz/xsync/v4"
)

// A gcra is the generic cell rate algorithm in one word that changes by compare-and-swap, the least that a rate limit
// takes. It does less than every limiter that it is compared with: it has no statistics, no RetryAfter and no queue,
// and it cannot be reconfigured.
type gcra struct{ due atomic.Int64 }

var origin = time.Now()

// allow takes a permit. One comes each interval, and at most plenty are saved.
func (g *gcra) allow(interval time.Duration) bool {
	now := int64(time.Since(origin))
	for {
		due := g.due.Load()
		next := max(due, now) + int64(interval)
		if next-now > plenty*int64(interval) {
			return false
		}
		if g.due.CompareAndSwap(due, next) {
			return true
		}
	}
}

// gcraMapStore is a gcra for each key in a concurrent map. It never forgets a key.
func gcraMapStore(interval time.Duration) func(b *testing.B) store {
	return func(*testing.B) store {
		cells := xsync.NewMap[string, *gcra]()
		return store{
			try: func(key string) bool {
				g, ok := cells.Load(key)
				if !ok {
					g, _ = cells.LoadOrStore(key, new(gcra))
				}
				return g.allow(interval)
			},
			close: cells.Clear,
		}
	}
}
