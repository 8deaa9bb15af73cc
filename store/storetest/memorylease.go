package storetest

import (
	"context"
	"slices"

	"github.com/weir-go/weir/store/backend"
)

// keyLeases are the leases of one key of a concurrency limiter.
type keyLeases struct {
	version int64 // of the newest definition used
	leases  []lease
	wanted  bool // a caller that waits for a notice was rejected
}

type lease struct {
	id       string
	permits  int64
	end, ttl int64
	fence    int64
}

func (l *lease) renew(now, ttl int64) { l.end, l.ttl = now+ttl, ttl }

// expire drops expired leases. After the clock has stepped back, none ends later than its TTL from now.
func (kl *keyLeases) expire(now int64) {
	for i := range kl.leases {
		kl.leases[i].end = min(kl.leases[i].end, now+kl.leases[i].ttl)
	}
	kl.leases = slices.DeleteFunc(kl.leases, func(l lease) bool { return l.end <= now })
}

func (kl *keyLeases) inUse() (sum int64) {
	for _, l := range kl.leases {
		sum += l.permits
	}
	return sum
}

func (kl *keyLeases) nextEnd(now int64) int64 {
	var next int64
	for _, l := range kl.leases {
		if left := l.end - now; next == 0 || left < next {
			next = left
		}
	}
	return next
}

// find returns the index of a lease, or -1 if it has ended.
func (kl *keyLeases) find(id string) int {
	return slices.IndexFunc(kl.leases, func(l lease) bool { return l.id == id })
}

// Acquire implements [backend.Backend].
func (m *Memory) Acquire(ctx context.Context, requests []*backend.LeaseRequest) error {
	return roundTrip(ctx, m, "Acquire", requests, m.acquire)
}

func (m *Memory) acquire(r *backend.LeaseRequest) {
	r.Outcome, r.OK, r.InUse, r.Version, r.NextExpiry, r.Fence = backend.Decided, false, 0, 0, 0, 0
	now := m.now()
	if d := m.definitions[r.Definition.Name]; d != nil && d.Version > r.Definition.Version {
		r.Outcome, r.Version = backend.OutdatedDefinition, d.Version
		return
	}
	kl := m.keyLeases(r, now)
	if kl.version > r.Definition.Version {
		r.Outcome, r.Version = backend.OutdatedDefinition, kl.version
		return
	}
	kl.version = r.Definition.Version
	permits := max(r.Permits, 0)
	switch i := kl.find(r.ID); {
	case permits > 0 && i >= 0: // sent again, because the answer was lost
		kl.leases[i].renew(now, r.TTL)
		r.OK, r.Fence = true, kl.leases[i].fence
	case kl.inUse()+max(permits, 1) > r.Definition.Permits:
		r.NextExpiry = kl.nextEnd(now)
		kl.wanted = kl.wanted || r.Waiting
	case permits == 0:
		r.OK = true
	default:
		m.fence++
		r.OK, r.Fence = true, m.fence
		kl.leases = append(kl.leases, lease{id: r.ID, permits: permits, end: now + r.TTL, ttl: r.TTL, fence: m.fence})
	}
	r.InUse = kl.inUse()
	if len(kl.leases) == 0 {
		delete(m.leases, target{r.Definition.Name, r.Key})
	}
}

// keyLeases returns the leases of the key of r that have not expired.
func (m *Memory) keyLeases(r *backend.LeaseRequest, now int64) *keyLeases {
	k := target{r.Definition.Name, r.Key}
	kl := m.leases[k]
	if kl != nil {
		kl.expire(now)
	}
	if kl == nil || len(kl.leases) == 0 {
		kl = &keyLeases{}
		m.leases[k] = kl
	}
	return kl
}

// Renew implements [backend.Backend].
func (m *Memory) Renew(ctx context.Context, requests []*backend.LeaseRequest) error {
	return roundTrip(ctx, m, "Renew", requests, func(r *backend.LeaseRequest) {
		now := m.now()
		m.withLease(r, now, func(kl *keyLeases, i int) { kl.leases[i].renew(now, r.TTL) })
	})
}

// Release implements [backend.Backend]. It sends a notice only if a waiting caller was rejected before.
func (m *Memory) Release(ctx context.Context, requests []*backend.LeaseRequest) error {
	return roundTrip(ctx, m, "Release", requests, func(r *backend.LeaseRequest) {
		m.withLease(r, m.now(), func(kl *keyLeases, i int) {
			kl.leases = slices.Delete(kl.leases, i, i+1)
			if kl.wanted {
				m.notify(backend.Notice{Name: r.Definition.Name, Key: r.Key, Released: true})
			}
		})
	})
}

// withLease calls f if the lease of r has not ended, and sets the answers.
func (m *Memory) withLease(r *backend.LeaseRequest, now int64, f func(kl *keyLeases, i int)) {
	r.Outcome, r.OK = backend.Decided, false
	kl := m.keyLeases(r, now)
	if i := kl.find(r.ID); i >= 0 && (r.Fence == 0 || kl.leases[i].fence == r.Fence) {
		r.OK = true
		f(kl, i)
	}
	if len(kl.leases) == 0 {
		delete(m.leases, target{r.Definition.Name, r.Key})
	}
}
