package storetest

import (
	"context"
	"slices"

	"github.com/weir-go/weir/store/backend"
)

// A room is what is held of one key of a concurrency limiter.
type room struct {
	version int64 // the newest definition that was asked with
	leases  []lease
	wanted  bool // somebody was rejected who waits to hear of a release
}

type lease struct {
	id       string
	permits  int64
	end, ttl int64
	fence    int64
}

func (l *lease) renew(now, ttl int64) { l.end, l.ttl = now+ttl, ttl }

// expire drops the leases that have run out. None ends later than its TTL from now, if the
// clock has stepped back.
func (r *room) expire(now int64) {
	for i := range r.leases {
		r.leases[i].end = min(r.leases[i].end, now+r.leases[i].ttl)
	}
	r.leases = slices.DeleteFunc(r.leases, func(l lease) bool { return l.end <= now })
}

func (r *room) inUse() (sum int64) {
	for _, l := range r.leases {
		sum += l.permits
	}
	return sum
}

func (r *room) nextEnd(now int64) int64 {
	var next int64
	for _, l := range r.leases {
		if left := l.end - now; next == 0 || left < next {
			next = left
		}
	}
	return next
}

// find returns the place of a lease by its ID, -1 if it has ended.
func (r *room) find(id string) int {
	return slices.IndexFunc(r.leases, func(l lease) bool { return l.id == id })
}

// Acquire takes permits of concurrency limiters.
func (m *Memory) Acquire(ctx context.Context, holds []*backend.LeaseRequest) error {
	return roundTrip(ctx, m, "Acquire", m.reachHolds(ctx, holds), m.hold)
}

func (m *Memory) hold(h *backend.LeaseRequest) {
	h.Outcome, h.OK, h.InUse, h.Version, h.NextExpiry, h.Fence = backend.Decided, false, 0, 0, 0, 0
	now := m.now()
	if d := m.definitions[h.Definition.Name]; d != nil && d.Version > h.Definition.Version {
		h.Outcome, h.Version = backend.OutdatedDefinition, d.Version
		return
	}
	r := m.room(h, now)
	if r.version > h.Definition.Version {
		h.Outcome, h.Version = backend.OutdatedDefinition, r.version
		return
	}
	r.version = h.Definition.Version
	permits := max(h.Permits, 0)
	switch i := r.find(h.ID); {
	case permits > 0 && i >= 0: // asked again, because the answer was lost
		r.leases[i].renew(now, h.TTL)
		h.OK, h.Fence = true, r.leases[i].fence
	case r.inUse()+max(permits, 1) > h.Definition.Permits:
		h.NextExpiry = r.nextEnd(now)
		r.wanted = r.wanted || h.Waiting
	case permits == 0:
		h.OK = true
	default:
		m.fence++
		h.OK, h.Fence = true, m.fence
		r.leases = append(r.leases, lease{id: h.ID, permits: permits, end: now + h.TTL, ttl: h.TTL, fence: m.fence})
	}
	h.InUse = r.inUse()
	if len(r.leases) == 0 {
		delete(m.rooms, target{h.Definition.Name, h.Key})
	}
}

// room returns the room of a hold, without what has run out.
func (m *Memory) room(h *backend.LeaseRequest, now int64) *room {
	k := target{h.Definition.Name, h.Key}
	r := m.rooms[k]
	if r != nil {
		r.expire(now)
	}
	if r == nil || len(r.leases) == 0 {
		r = &room{}
		m.rooms[k] = r
	}
	return r
}

// Renew puts off the end of leases.
func (m *Memory) Renew(ctx context.Context, holds []*backend.LeaseRequest) error {
	return roundTrip(ctx, m, "Renew", m.reachHolds(ctx, holds), func(h *backend.LeaseRequest) {
		now := m.now()
		m.ifThere(h, now, func(r *room, i int) { r.leases[i].renew(now, h.TTL) })
	})
}

// Release gives leases back, and tells all who listen if somebody was rejected who waits.
func (m *Memory) Release(ctx context.Context, holds []*backend.LeaseRequest) error {
	return roundTrip(ctx, m, "Release", m.reachHolds(ctx, holds), func(h *backend.LeaseRequest) {
		m.ifThere(h, m.now(), func(r *room, i int) {
			r.leases = slices.Delete(r.leases, i, i+1)
			if r.wanted {
				m.tell(backend.Notice{Name: h.Definition.Name, Key: h.Key, Released: true})
			}
		})
	})
}

// ifThere does f if the lease of h has not ended, and sets the answers.
func (m *Memory) ifThere(h *backend.LeaseRequest, now int64, f func(r *room, i int)) {
	h.Outcome, h.OK = backend.Decided, false
	r := m.room(h, now)
	if i := r.find(h.ID); i >= 0 && (h.Fence == 0 || r.leases[i].fence == h.Fence) {
		h.OK = true
		f(r, i)
	}
	if len(r.leases) == 0 {
		delete(m.rooms, target{h.Definition.Name, h.Key})
	}
}
