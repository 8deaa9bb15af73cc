package weirpostgres

import (
	"hash/maphash"
	"sync/atomic"

	"github.com/weir-go/weir/store/backend"
)

// recentRejections remembers which keys had a request that was rejected. For such a key, the server reads the row before it locks it,
// so that a rejection locks and writes nothing. A key is remembered until grantsToForget requests in a row were granted: under
// overload, a request is granted now and then. A key also counts as remembered if another key with the same slot is; this costs
// only a little time.
type recentRejections struct {
	seed  maphash.Seed
	slots [4096]atomic.Int32 // how many grants are left until the keys of the slot are forgotten
}

const grantsToForget = 16

func (r *recentRejections) slot(b *backend.Batch) *atomic.Int32 {
	h := maphash.String(r.seed, b.Definition.Name) ^ maphash.String(r.seed, b.Key)*31
	return &r.slots[h%uint64(len(r.slots))]
}

// readFirst reports whether to read the row before it is locked. A request that takes nothing never needs the lock.
func (r *recentRejections) readFirst(b *backend.Batch) bool {
	return len(b.Requests) > 0 && b.Requests[0].Op == backend.OpTake && b.Requests[0].Max == 0 || r.slot(b).Load() > 0
}

// answered counts the answer to a batch.
func (r *recentRejections) answered(b *backend.Batch) {
	left := r.slot(b)
	if b.Outcome != backend.Decided || len(b.Granted) > 0 && b.Granted[0] == backend.Rejected {
		left.Store(grantsToForget)
	} else if n := left.Load(); n > 0 {
		left.CompareAndSwap(n, n-1)
	}
}
