package weirpostgres

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/weir-go/weir/store/backend"
)

// Acquire implements [backend.Backend]. The requests about one key are decided one after the other, with its row locked
// until it is on the server's disk: many of them in one call are faster than many calls.
func (b *Backend) Acquire(ctx context.Context, requests []*backend.LeaseRequest) error {
	requests, err := b.validRequests("acquire", requests)
	if err != nil {
		return err
	}
	err = askSeparately(ctx, b, requests, keyedStatement[*backend.LeaseRequest]{
		locked: b.sql.lockedSemaphores,
		row:    func(h *backend.LeaseRequest) row { return row{"semaphores", h.Definition.Name, h.Key, ""} },
		ask:    b.acquireTogether,
		fail:   setFailed,
	})
	if err == nil {
		b.sweeper.decided(len(requests))
	}
	return err
}

func setFailed(h *backend.LeaseRequest, err error) { h.Outcome, h.Err = backend.Failed, err }

// validRequests returns the valid requests, and sets the outcome of the others.
func (b *Backend) validRequests(what string, requests []*backend.LeaseRequest) ([]*backend.LeaseRequest, error) {
	good := requests
	for i, h := range requests {
		if h == nil {
			return nil, b.explain(what, errors.New("a request is nil"))
		}
		if err := checkDefinition(h.Definition); err != nil {
			setFailed(h, b.explain(what, err))
			if len(good) == len(requests) {
				good = requests[:i:i]
			}
		} else if len(good) < len(requests) {
			good = append(good, h)
		}
	}
	return good, nil
}

func (b *Backend) acquireTogether(ctx context.Context, requests []*backend.LeaseRequest, wait time.Duration) error {
	g := groupsOf(requests)
	args := []any{g.names, g.keys, g.versions, g.most, g.waiting, g.first, g.last, g.ids, g.wants, lockTimeout(wait)}
	return b.queryAll(ctx, "acquire", b.sql.acquire, args, len(g.names), func(i int, rows pgx.Rows) error {
		var n []int64
		if err := rows.Scan(&n); err != nil {
			return err
		}
		of := requests[g.first[i]-1 : g.last[i]]
		if len(n) == 1 { // the version of a newer definition
			for _, h := range of {
				h.Outcome, h.OK, h.Version = backend.OutdatedDefinition, false, n[0]
			}
			return nil
		}
		if len(n) != 6*len(of) {
			return errAnswer
		}
		for j, h := range of {
			n := n[6*j:]
			h.Outcome, h.OK, h.InUse, h.NextExpiry, h.Fence, h.Version = backend.Outcome(n[0]), n[1] == 1, n[2], n[3], n[4], n[5]
		}
		return nil
	})
}

// groups are requests as the server takes them: requests that follow each other with the same key and definition are
// decided together.
type groups struct {
	names                   []string
	keys                    [][]byte
	versions, most, waiting []int64
	first, last             []int32 // indexes in ids, from 1

	ids   [][]byte
	wants []int64 // permits and TTL of each
}

func groupsOf(requests []*backend.LeaseRequest) (g groups) {
	for i, h := range requests {
		g.ids = append(g.ids, keyBytes(h.ID))
		g.wants = append(g.wants, max(bounded(h.Permits), 0), max(bounded(h.TTL), 0))
		last := len(g.names) - 1
		if i == 0 || requests[i-1].Key != h.Key || requests[i-1].Definition != h.Definition && *requests[i-1].Definition != *h.Definition {
			g.names, g.keys = append(g.names, h.Definition.Name), append(g.keys, keyBytes(h.Key))
			g.versions, g.most = append(g.versions, h.Definition.Version), append(g.most, bounded(h.Definition.Permits))
			g.waiting, g.first, g.last = append(g.waiting, 0), append(g.first, int32(i+1)), append(g.last, 0)
			last++
		}
		g.last[last] = int32(i + 1)
		g.waiting[last] |= bit(h.Waiting && len(h.Key) <= maxKey)
	}
	return g
}

// Renew implements [backend.Backend].
func (b *Backend) Renew(ctx context.Context, requests []*backend.LeaseRequest) error {
	return b.changeLeases(ctx, "renew", b.sql.renew, requests, func(c columns) []any {
		return []any{c.names, c.keys, c.ids, c.fences, c.ttls}
	})
}

// Release implements [backend.Backend].
func (b *Backend) Release(ctx context.Context, requests []*backend.LeaseRequest) error {
	return b.changeLeases(ctx, "release", b.sql.release, requests, func(c columns) []any {
		tell := make([]bool, len(c.requests))
		for i, h := range c.requests {
			tell[i] = len(h.Key) <= maxKey // a notice cannot name a longer key; its callers poll
		}
		return []any{c.names, c.keys, c.ids, c.fences, b.async, tell}
	})
}

// changeLeases renews or releases leases. The last argument of the statement is lock_timeout.
func (b *Backend) changeLeases(ctx context.Context, what, sql string, requests []*backend.LeaseRequest, args func(columns) []any) error {
	requests, err := b.validRequests(what, requests)
	if err != nil {
		return err
	}
	return askSeparately(ctx, b, requests, keyedStatement[*backend.LeaseRequest]{
		locked: b.sql.lockedLeases,
		row:    func(h *backend.LeaseRequest) row { return row{"leases", h.Definition.Name, h.Key, h.ID} },
		ask: func(ctx context.Context, requests []*backend.LeaseRequest, wait time.Duration) error {
			c := columnsOf(requests)
			return b.queryAll(ctx, what, sql, append(args(c), lockTimeout(wait)), len(requests), func(i int, rows pgx.Rows) error {
				h := c.requests[i]
				h.Outcome = backend.Decided
				return rows.Scan(&h.OK)
			})
		},
		fail: setFailed,
	})
}

// columns are requests as the server takes them, sorted by ID within a key, so that calls about the same leases lock
// them in the same order.
type columns struct {
	requests     []*backend.LeaseRequest
	names        []string
	keys, ids    [][]byte
	fences, ttls []int64
}

func columnsOf(requests []*backend.LeaseRequest) (c columns) {
	c = columns{
		requests: slices.Clone(requests), names: make([]string, len(requests)), keys: make([][]byte, len(requests)), ids: make([][]byte, len(requests)),
		fences: make([]int64, len(requests)), ttls: make([]int64, len(requests)),
	}
	slices.SortStableFunc(c.requests, func(a, b *backend.LeaseRequest) int {
		return cmp.Or(cmp.Compare(a.Definition.Name, b.Definition.Name), cmp.Compare(a.Key, b.Key), cmp.Compare(a.ID, b.ID))
	})
	for i, h := range c.requests {
		c.names[i], c.keys[i], c.ids[i] = h.Definition.Name, keyBytes(h.Key), keyBytes(h.ID)
		c.fences[i], c.ttls[i] = h.Fence, max(bounded(h.TTL), 0)
	}
	return c
}
