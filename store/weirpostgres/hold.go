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

// Acquire takes permits. Holds of one key come one after the other, each with the key's row locked until it is on
// the server's disk: many of them in one call are faster than many calls.
func (b *Backend) Acquire(ctx context.Context, holds []*backend.LeaseRequest) error {
	holds, err := b.sound("hold", holds)
	if err != nil {
		return err
	}
	err = askApart(ctx, b, holds, keyed[*backend.LeaseRequest]{
		locked: b.sql.lockedSemaphores,
		row:    func(h *backend.LeaseRequest) row { return row{"semaphores", h.Definition.Name, h.Key, ""} },
		ask:    b.holdTogether,
		fail:   failHold,
	})
	if err == nil {
		b.sweeper.decided(len(holds))
	}
	return err
}

func failHold(h *backend.LeaseRequest, err error) { h.Outcome, h.Err = backend.Failed, err }

// sound returns the holds that can be asked about; the others fail, each by itself.
func (b *Backend) sound(what string, holds []*backend.LeaseRequest) ([]*backend.LeaseRequest, error) {
	good := holds
	for i, h := range holds {
		if h == nil {
			return nil, b.explained(what, errors.New("a hold is nil"))
		}
		if err := checkDefinition(h.Definition); err != nil {
			failHold(h, b.explained(what, err))
			if len(good) == len(holds) {
				good = holds[:i:i]
			}
		} else if len(good) < len(holds) {
			good = append(good, h)
		}
	}
	return good, nil
}

func (b *Backend) holdTogether(ctx context.Context, holds []*backend.LeaseRequest, wait time.Duration) error {
	g := groupsOf(holds)
	args := []any{g.names, g.keys, g.versions, g.most, g.waiting, g.first, g.last, g.ids, g.wants, lockTimeout(wait)}
	return b.queryAll(ctx, "hold", b.sql.hold, args, len(g.names), func(i int, rows pgx.Rows) error {
		var n []int64
		if err := rows.Scan(&n); err != nil {
			return err
		}
		of := holds[g.first[i]-1 : g.last[i]]
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

// groups are holds as the server takes them: those that follow each other with the same key and definition are
// decided together.
type groups struct {
	names                   []string
	keys                    [][]byte
	versions, most, waiting []int64
	first, last             []int32 // places in ids, from 1

	ids   [][]byte
	wants []int64 // permits and TTL of each
}

func groupsOf(holds []*backend.LeaseRequest) (g groups) {
	for i, h := range holds {
		g.ids = append(g.ids, keyBytes(h.ID))
		g.wants = append(g.wants, max(bounded(h.Permits), 0), max(bounded(h.TTL), 0))
		last := len(g.names) - 1
		if i == 0 || holds[i-1].Key != h.Key || holds[i-1].Definition != h.Definition && *holds[i-1].Definition != *h.Definition {
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

// Renew puts off the end of leases.
func (b *Backend) Renew(ctx context.Context, holds []*backend.LeaseRequest) error {
	return b.late(ctx, "renew", b.sql.renew, holds, func(c columns) []any {
		return []any{c.names, c.keys, c.ids, c.fences, c.ttls}
	})
}

// Release gives leases back, and tells those who wait.
func (b *Backend) Release(ctx context.Context, holds []*backend.LeaseRequest) error {
	return b.late(ctx, "release", b.sql.release, holds, func(c columns) []any {
		tell := make([]bool, len(c.holds))
		for i, h := range c.holds {
			tell[i] = len(h.Key) <= maxKey // who waits for a longer one polls: a notice cannot name it
		}
		return []any{c.names, c.keys, c.ids, c.fences, b.async, tell}
	})
}

// late does what is done with leases that were given before. The last argument of the statement is lock_timeout.
func (b *Backend) late(ctx context.Context, what, sql string, holds []*backend.LeaseRequest, args func(columns) []any) error {
	holds, err := b.sound(what, holds)
	if err != nil {
		return err
	}
	return askApart(ctx, b, holds, keyed[*backend.LeaseRequest]{
		locked: b.sql.lockedLeases,
		row:    func(h *backend.LeaseRequest) row { return row{"leases", h.Definition.Name, h.Key, h.ID} },
		ask: func(ctx context.Context, holds []*backend.LeaseRequest, wait time.Duration) error {
			c := columnsOf(holds)
			return b.queryAll(ctx, what, sql, append(args(c), lockTimeout(wait)), len(holds), func(i int, rows pgx.Rows) error {
				h := c.holds[i]
				h.Outcome = backend.Decided
				return rows.Scan(&h.OK)
			})
		},
		fail: failHold,
	})
}

// columns are holds as the server takes them, sorted by ID within a key: calls about the same leases lock them
// in the same order.
type columns struct {
	holds        []*backend.LeaseRequest
	names        []string
	keys, ids    [][]byte
	fences, ttls []int64
}

func columnsOf(holds []*backend.LeaseRequest) (c columns) {
	c = columns{
		holds: slices.Clone(holds), names: make([]string, len(holds)), keys: make([][]byte, len(holds)), ids: make([][]byte, len(holds)),
		fences: make([]int64, len(holds)), ttls: make([]int64, len(holds)),
	}
	slices.SortStableFunc(c.holds, func(a, b *backend.LeaseRequest) int {
		return cmp.Or(cmp.Compare(a.Definition.Name, b.Definition.Name), cmp.Compare(a.Key, b.Key), cmp.Compare(a.ID, b.ID))
	})
	for i, h := range c.holds {
		c.names[i], c.keys[i], c.ids[i] = h.Definition.Name, keyBytes(h.Key), keyBytes(h.ID)
		c.fences[i], c.ttls[i] = h.Fence, max(bounded(h.TTL), 0)
	}
	return c
}
