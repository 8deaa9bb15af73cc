package weirpostgres

import (
	"hash/maphash"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir/internal/clock"
	"github.com/weir-go/weir/store/backend"
)

// lockRemembered is how long a key is sent apart after its row was found locked.
const lockRemembered = time.Second

// recentLocks remembers which keys had a locked row. A key also counts as locked if another key with the same slot was;
// this costs a round trip.
type recentLocks struct {
	seed  maphash.Seed
	last  atomic.Int64       // the time of the last call of remember
	slots [4096]atomic.Int64 // the time of the last call of remember for a row with that slot
}

func (l *recentLocks) init() { l.seed = maphash.MakeSeed() }

func (l *recentLocks) remember(x row) {
	now := max(int64(clock.Now()), 1)
	l.slot(x).Store(now)
	l.last.Store(now)
}

// has reports whether the row was found locked a short time ago.
func (l *recentLocks) has(x row) bool { return recent(l.slot(x).Load()) }

// any reports whether any row was found locked a short time ago.
func (l *recentLocks) any() bool { return recent(l.last.Load()) }

func recent(at int64) bool { return at != 0 && int64(clock.Now())-at < int64(lockRemembered) }

func (l *recentLocks) slot(x row) *atomic.Int64 {
	return &l.slots[maphash.Comparable(l.seed, x)%uint64(len(l.slots))]
}

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
