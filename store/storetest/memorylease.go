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
	return roundTrip(ctx, m, "Acquire", reachable(ctx, m, requests, leaseFields), m.acquire)
}

func (m *Memory) acquire(h *backend.LeaseRequest) {
	h.Outcome, h.OK, h.InUse, h.Version, h.NextExpiry, h.Fence = backend.Decided, false, 0, 0, 0, 0
	now := m.now()
	if d := m.definitions[h.Definition.Name]; d != nil && d.Version > h.Definition.Version {
		h.Outcome, h.Version = backend.OutdatedDefinition, d.Version
		return
	}
	kl := m.keyLeases(h, now)
	if kl.version > h.Definition.Version {
		h.Outcome, h.Version = backend.OutdatedDefinition, kl.version
		return
	}
	kl.version = h.Definition.Version
	permits := max(h.Permits, 0)
	switch i := kl.find(h.ID); {
	case permits > 0 && i >= 0: // sent again, because the answer was lost
		kl.leases[i].renew(now, h.TTL)
		h.OK, h.Fence = true, kl.leases[i].fence
	case kl.inUse()+max(permits, 1) > h.Definition.Permits:
		h.NextExpiry = kl.nextEnd(now)
		kl.wanted = kl.wanted || h.Waiting
	case permits == 0:
		h.OK = true
	default:
		m.fence++
		h.OK, h.Fence = true, m.fence
		kl.leases = append(kl.leases, lease{id: h.ID, permits: permits, end: now + h.TTL, ttl: h.TTL, fence: m.fence})
	}
	h.InUse = kl.inUse()
	if len(kl.leases) == 0 {
		delete(m.leases, target{h.Definition.Name, h.Key})
	}
}

// keyLeases returns the leases of the key of h that have not expired.
func (m *Memory) keyLeases(h *backend.LeaseRequest, now int64) *keyLeases {
	k := target{h.Definition.Name, h.Key}
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
	return roundTrip(ctx, m, "Renew", reachable(ctx, m, requests, leaseFields), func(h *backend.LeaseRequest) {
		now := m.now()
		m.withLease(h, now, func(kl *keyLeases, i int) { kl.leases[i].renew(now, h.TTL) })
	})
}

// Release implements [backend.Backend]. It sends a notice only if a waiting caller was rejected before.
func (m *Memory) Release(ctx context.Context, requests []*backend.LeaseRequest) error {
	return roundTrip(ctx, m, "Release", reachable(ctx, m, requests, leaseFields), func(h *backend.LeaseRequest) {
		m.withLease(h, m.now(), func(kl *keyLeases, i int) {
			kl.leases = slices.Delete(kl.leases, i, i+1)
			if kl.wanted {
				m.tell(backend.Notice{Name: h.Definition.Name, Key: h.Key, Released: true})
			}
		})
	})
}

// withLease calls f if the lease of h has not ended, and sets the answers.
func (m *Memory) withLease(h *backend.LeaseRequest, now int64, f func(kl *keyLeases, i int)) {
	h.Outcome, h.OK = backend.Decided, false
	kl := m.keyLeases(h, now)
	if i := kl.find(h.ID); i >= 0 && (h.Fence == 0 || kl.leases[i].fence == h.Fence) {
		h.OK = true
		f(kl, i)
	}
	if len(kl.leases) == 0 {
		delete(m.leases, target{h.Definition.Name, h.Key})
	}
}
