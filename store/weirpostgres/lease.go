package weirpostgres

import (
	"cmp"
	"context"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/weir-go/weir/store/backend"
)

// Acquire implements [backend.Backend]. A call locks the row of each key until the row is on the server's disk.
// Therefore, one call with many requests about a key is faster than many calls.
func (b *Backend) Acquire(ctx context.Context, requests []*backend.LeaseRequest) error {
	err := b.runLeases(ctx, "acquire", requests, b.acquireTogether)
	if err == nil {
		b.sweeper.decided(len(requests))
	}
	return err
}

// runLeases runs a statement about leases. send sends it once.
func (b *Backend) runLeases(ctx context.Context, what string, requests []*backend.LeaseRequest, send sender[*backend.LeaseRequest]) error {
	requests = backend.Valid(requests, "weirpostgres: "+what, func(r *backend.LeaseRequest) error { return checkDefinition(r.Definition) })
	return keyedStatement[*backend.LeaseRequest]{&b.locks, send, send}.run(ctx, requests)
}

func (b *Backend) acquireTogether(ctx context.Context, requests []*backend.LeaseRequest, wait lockWaiting) error {
	c := acquireColumnsOf(requests)
	args := []any{c.names, c.keys, c.versions, c.limits, c.waiting, c.first, c.last, c.ids, c.wants, wait.skips, wait.timeout()}
	return b.query(ctx, "acquire", b.sql.acquire, args, len(c.names), func(i int, rows pgx.Rows) error {
		var n []int64
		if err := rows.Scan(&n); err != nil {
			return err
		}
		group := requests[c.first[i]-1 : c.last[i]]
		if len(n) != 6*len(group) {
			return errAnswer
		}
		for j, r := range group {
			n := n[6*j:]
			r.Outcome, r.OK, r.InUse, r.NextExpiry, r.Fence, r.Version = backend.Outcome(n[0]), n[1] == 1, n[2], n[3], n[4], n[5]
		}
		return nil
	})
}

// acquireColumns are requests as the statement acquire takes them. Consecutive requests with the same key and definition
// are a group, which is decided together.
type acquireColumns struct {
	// Of each group:
	names                     []string
	keys                      [][]byte
	versions, limits, waiting []int64
	first, last               []int32 // indexes in ids, from 1

	// Of each request:
	ids   [][]byte
	wants []int64 // permits and TTL
}

func acquireColumnsOf(requests []*backend.LeaseRequest) (c acquireColumns) {
	for i, r := range requests {
		c.ids = append(c.ids, keyBytes(r.ID))
		c.wants = append(c.wants, max(bounded(r.Permits), 0), max(bounded(r.TTL), 0))
		last := len(c.names) - 1
		if i == 0 || !sameKey(requests[i-1], r) {
			c.names, c.keys = append(c.names, r.Definition.Name), append(c.keys, keyBytes(r.Key))
			c.versions, c.limits = append(c.versions, r.Definition.Version), append(c.limits, bounded(r.Definition.Permits))
			c.waiting, c.first, c.last = append(c.waiting, 0), append(c.first, int32(i+1)), append(c.last, 0)
			last++
		}
		c.last[last] = int32(i + 1)
		c.waiting[last] |= bit(r.Waiting && hasNotices(r))
	}
	return c
}

// sameKey reports whether two requests are about the same key, by the same definition.
func sameKey(a, b *backend.LeaseRequest) bool {
	return a.Key == b.Key && (a.Definition == b.Definition || *a.Definition == *b.Definition)
}

// hasNotices reports whether notices can name the key. If the key is too long, waiting callers poll.
func hasNotices(r *backend.LeaseRequest) bool { return len(r.Key) <= maxKey }

// Renew implements [backend.Backend].
func (b *Backend) Renew(ctx context.Context, requests []*backend.LeaseRequest) error {
	return b.changeLeases(ctx, "renew", b.sql.renew, requests, func(r *backend.LeaseRequest) int64 { return max(bounded(r.TTL), 0) })
}

// Release implements [backend.Backend].
func (b *Backend) Release(ctx context.Context, requests []*backend.LeaseRequest) error {
	return b.changeLeases(ctx, "release", b.sql.release, requests, func(r *backend.LeaseRequest) int64 { return bit(hasNotices(r)) })
}

// changeLeases renews or releases leases. The arguments of the statement are names, keys, IDs, fences, a number of each request, and
// lock_timeout. The requests are sorted by ID within a key, so that calls about the same leases lock them in the same order.
func (b *Backend) changeLeases(ctx context.Context, what, sql string, requests []*backend.LeaseRequest, number func(*backend.LeaseRequest) int64) error {
	return b.runLeases(ctx, what, requests, func(ctx context.Context, requests []*backend.LeaseRequest, wait lockWaiting) error {
		requests = slices.Clone(requests)
		slices.SortStableFunc(requests, func(a, b *backend.LeaseRequest) int {
			return cmp.Or(cmp.Compare(a.Definition.Name, b.Definition.Name), cmp.Compare(a.Key, b.Key), cmp.Compare(a.ID, b.ID))
		})
		n := len(requests)
		names, keys, ids, fences, numbers := make([]string, n), make([][]byte, n), make([][]byte, n), make([]int64, n), make([]int64, n)
		for i, r := range requests {
			names[i], keys[i], ids[i], fences[i], numbers[i] = r.Definition.Name, keyBytes(r.Key), keyBytes(r.ID), r.Fence, number(r)
		}
		args := []any{names, keys, ids, fences, numbers, wait.timeout()}
		return b.query(ctx, what, sql, args, n, func(i int, rows pgx.Rows) error {
			requests[i].Outcome = backend.Decided
			return rows.Scan(&requests[i].OK)
		})
	})
}
