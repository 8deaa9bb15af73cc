package weirpostgres

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/weir-go/weir/store/backend"
)

// Replace implements [backend.Backend] in one statement.
func (b *Backend) Replace(ctx context.Context, all []*backend.Replacement) error {
	all = backend.Valid(all, "weirpostgres: replace", func(r *backend.Replacement) error { return checkSchedule(r.Definition) })
	return keyedStatement[*backend.Replacement]{&b.locks, b.replaceTogether, b.replaceTogether}.run(ctx, all)
}

func (b *Backend) replaceTogether(ctx context.Context, all []*backend.Replacement, wait lockWaiting) error {
	names, keys := make([]string, len(all)), make([][]byte, len(all))
	var old, next stateColumns
	for i, r := range all {
		names[i], keys[i] = r.Definition.Name, keyBytes(r.Key)
		old.add(r.Old)
		next.add(r.Next)
	}
	args := []any{names, keys, wait.skips, old.numbers, old.taken, old.first, old.last, next.numbers, next.taken, next.first, next.last, wait.timeout()}
	return b.query(ctx, "replace", b.sql.replace, args, len(all), func(i int, rows pgx.Rows) error {
		var done *bool
		if err := rows.Scan(&done); err != nil {
			return err
		}
		if all[i].Outcome = undecided; done != nil {
			all[i].Outcome, all[i].Done = backend.Decided, *done
		}
		return nil
	})
}

// stateColumns are states as the statement replace takes them: the numbers and the segments of all states. first
// and last are the indexes of each state's segments in taken, from 1.
type stateColumns struct {
	numbers, taken []int64
	first, last    []int32
}

func (c *stateColumns) add(s backend.State) {
	if c.taken == nil {
		c.taken = []int64{} // nil would be null
	}
	g := &s.Schedule
	c.numbers = append(c.numbers, s.Line, s.Missing, s.Floor, s.Refunded, s.Version, int64(g.Kind), g.Anchor, g.Period, g.Refill, g.Segments)
	c.first = append(c.first, int32(len(c.taken)+1))
	for _, t := range s.Segments {
		c.taken = append(c.taken, t.Line, t.Permits)
	}
	c.last = append(c.last, int32(len(c.taken)))
}
