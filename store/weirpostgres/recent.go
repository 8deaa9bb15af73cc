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

// recentLocks remembers which keys had a locked row. Keys with the same slot mislead each other, which costs a round
// trip.
type recentLocks struct {
	seed  maphash.Seed
	last  atomic.Int64       // when any was remembered
	slots [4096]atomic.Int64 // when a row of that slot was
}

func (l *recentLocks) init() { l.seed = maphash.MakeSeed() }

func (l *recentLocks) remember(x row) {
	now := max(int64(clock.Now()), 1)
	l.slot(x).Store(now)
	l.last.Store(now)
}

// has reports whether the row was found locked a short time ago.
func (l *recentLocks) has(x row) bool { return recent(l.slot(x).Load()) }

// any reports whether has can be true of any row.
func (l *recentLocks) any() bool { return recent(l.last.Load()) }

func recent(at int64) bool { return at != 0 && int64(clock.Now())-at < int64(lockRemembered) }

func (l *recentLocks) slot(x row) *atomic.Int64 {
	return &l.slots[maphash.Comparable(l.seed, x)%uint64(len(l.slots))]
}

// recentRejections remembers which keys had a request that was rejected or that the plain statement could not decide.
// For such a key, the server reads the row before it locks it, so that a rejection locks and writes nothing. A key is
// remembered until grantsToForget requests in a row were granted: under overload, a request is granted now and then. Keys
// with the same slot mislead each other, which costs only a little time.
type recentRejections struct {
	seed  maphash.Seed
	slots [4096]atomic.Int32
}

const grantsToForget = 16

// A rejections counts the grants until a key is forgotten.
type rejections struct{ left *atomic.Int32 }

func (r *recentRejections) init() { r.seed = maphash.MakeSeed() }

func (r *recentRejections) of(b *backend.Batch) rejections {
	h := maphash.String(r.seed, b.Definition.Name) ^ maphash.String(r.seed, b.Key)*31
	return rejections{&r.slots[h%uint64(len(r.slots))]}
}

// readFirst reports whether to read the row before it is locked. A request that takes nothing never needs the lock.
func (r rejections) readFirst(b *backend.Batch) bool {
	return r.left.Load() > 0 || len(b.Requests) > 0 && b.Requests[0].Op == backend.OpTake && b.Requests[0].Max == 0
}

func (r rejections) remember() { r.left.Store(grantsToForget) }

// answered counts the answer to a batch.
func (r rejections) answered(b *backend.Batch) {
	if b.Outcome != backend.Decided || len(b.Granted) > 0 && b.Granted[0] == backend.Rejected {
		r.remember()
	} else if n := r.left.Load(); n > 0 {
		r.left.CompareAndSwap(n, n-1)
	}
}
