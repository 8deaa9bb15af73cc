package store

import (
	"context"
	"unsafe"

	"github.com/weir-go/weir/limiter"
)

// KeyStates returns of how many keys the limiter remembers something.
func KeyStates(p *Partitioned) (n int) {
	p.c.keys.each(func(*keyState) { n++ })
	return n
}

// PretendKeys makes the limiter behave as if it remembered n more keys.
func PretendKeys(p *Partitioned, n int64) { p.c.keys.count.Add(n) }

// FillLocally fills the limiter that answers without the store with another key.
func FillLocally(l *Limiter) {
	f := &l.c.fallback
	f.limits = f.inForce()
	f.limiter, _ = limiter.NewPartitioned(func(key string) limiter.Partition[string] {
		return limiter.Partition[string]{Key: key, New: limiter.FactoryFor[string](f.limits)}
	}, &limiter.PartitionedOptions{MaxPartitions: 1})
	_, _ = f.limiter.TryAcquire(context.Background(), "other", 1)
}

// JoinLate joins the queue as a caller whose request for n permits was checked a moment ago.
func JoinLate(l *Limiter, n int) limiter.Lease {
	_, lease := l.c.keys.join(context.Background(), "", n, limiter.Lease{}, byKeyState)
	return lease
}

// KeyStateBytes is the size of what is remembered of each key.
const KeyStateBytes = unsafe.Sizeof(keyState{})
