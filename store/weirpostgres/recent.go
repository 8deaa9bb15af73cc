package weirpostgres

import (
	"hash/maphash"
	"sync/atomic"

	"github.com/weir-go/weir/store/backend"
)

// recentRejections remembers which keys had a request that was rejected or that the plain statement could not decide.
// For such a key, the server reads the row before it locks it, so that a rejection locks and writes nothing. A key is
// remembered until grantsToForget requests in a row were granted: under overload, a request is granted now and then. A
// key also counts as remembered if another key with the same slot is; this costs only a little time.
type recentRejections struct {
	seed  maphash.Seed
	slots [4096]atomic.Int32
}

const grantsToForget = 16

// keyRejections has the number of grants that are left until a key is forgotten.
type keyRejections struct{ left *atomic.Int32 }

func (r *recentRejections) init() { r.seed = maphash.MakeSeed() }

func (r *recentRejections) of(b *backend.Batch) keyRejections {
	h := maphash.String(r.seed, b.Definition.Name) ^ maphash.String(r.seed, b.Key)*31
	return keyRejections{&r.slots[h%uint64(len(r.slots))]}
}

// readFirst reports whether to read the row before it is locked. A request that takes nothing never needs the lock.
func (r keyRejections) readFirst(b *backend.Batch) bool {
	return r.left.Load() > 0 || len(b.Requests) > 0 && b.Requests[0].Op == backend.OpTake && b.Requests[0].Max == 0
}

func (r keyRejections) remember() { r.left.Store(grantsToForget) }

// answered counts the answer to a batch.
func (r keyRejections) answered(b *backend.Batch) {
	if b.Outcome != backend.Decided || len(b.Granted) > 0 && b.Granted[0] == backend.Rejected {
		r.remember()
	} else if n := r.left.Load(); n > 0 {
		r.left.CompareAndSwap(n, n-1)
	}
}
