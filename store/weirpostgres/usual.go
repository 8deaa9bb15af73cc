package weirpostgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/weir-go/weir/store/backend"
)

// There are two ways to decide. The function decide of the schema can decide everything. The usual question, so many
// permits of a bucket or a fixed window or none of them, is first put as one plain statement, which costs the
// server hardly more than any upsert does, and half as much as the function. It writes a row or does nothing; where it
// does nothing, the function decides, in a second round trip. That is when
//
//   - there is not enough left,
//   - the row is of another version of the definition, or there is a newer one, or some of it is lent,
//   - the server's clock has stepped back.
//
// Then it decides the next questions about that key, too: see recentTrouble.
//
// The statement reads the clock before the row is locked. If others have written the row meanwhile, what was read is
// behind the time in the row. Then time stands still at that one: the decision is as if it had been made right
// after theirs. A clock that is further behind than patience has stepped back, or the wait was long, and that is
// left to the function, which reads the clock with the row locked.
//
// It is planned anew each time where the pool does not keep prepared statements, which costs far more than the
// function; there the function decides always.

// usualStatement is the plain statement. $8 is a line of the grid from before 1970, so that nothing negative is
// divided, and $9 says how many lines it is before the anchor. When $11 lines have gone by, nothing is missing any
// more, whatever was: so many are counted at the most, and the product does not overflow. first is what else is to be
// done before the row is written. $14 is lock_timeout.
func usualStatement(first string) string {
	const paid = `least(greatest(excluded.line - s.line, 0), $11) * $12`
	return `insert into "weir".states as s (name, key, version, kind, anchor, period, refill, segments, line, missing, held, at)
		select $1::text, $2::bytea, $3::bigint, $4::bigint, $5::bigint, $6::bigint, $7::bigint, 0,
			(c.t - $8::bigint) / $6 - $9::bigint, $10::bigint, 0, c.t
			from (select "weir".clock() as t` + first + `) c
			where not exists (select from "weir".definitions d where d.name = $1::text and d.version > $3::bigint)
		on conflict (name, key) do update set line = greatest(s.line, excluded.line), at = greatest(s.at, excluded.at),
			missing = greatest(s.missing - ` + paid + `, 0) + $10
			where s.version = $3 and s.held = 0 and s.missing - ` + paid + ` <= $13::bigint and excluded.at >= s.at - ` + patience + `
		returning line, missing, at`
}

const (
	// mostMissing is the most that can be missing of a key.
	mostMissing = 1 << 51
	// farthest is how far from 0 the numbers of a grid can be that the plain statement reckons with. The numbers of all
	// grids that mean anything are nearer.
	farthest = 1 << 60
	// patience is how long time may stand still, in µs. Waits for a row that others write are shorter, usually.
	patience = "100000"
)

// preparing tells whether the pool keeps prepared statements.
func preparing(pool *pgxpool.Pool) bool {
	return pool.Config().ConnConfig.DefaultQueryExecMode == pgx.QueryExecModeCacheStatement
}

// usual tells whether the plain statement can decide a batch.
func usual(b *backend.Batch) bool {
	d := b.Definition
	if len(b.Requests) != 1 || d.Kind != backend.KindTokenBucket && d.Kind != backend.KindFixedWindow {
		return false
	}
	a := b.Requests[0]
	return a.Op == backend.OpTake && a.Min == a.Max && 0 < a.Max && a.Max <= min(d.Permits, mostMissing) && !a.Block &&
		-farthest < d.Anchor && d.Anchor < farthest && d.Period < farthest
}

// decideUsual puts the plain statement. If it has done nothing, the batch is left as it was.
func (b *Backend) decideUsual(ctx context.Context, batch *backend.Batch, wait time.Duration) (done bool, err error) {
	s := backend.State{Schedule: batch.Definition.Schedule()}
	err = b.query(ctx, "decide", b.sql.decideUsual, append(usualArgs(batch), lockTimeout(wait)), func(rows pgx.Rows) error {
		if err := rows.Scan(&s.Tick, &s.Missing, &batch.Now); err != nil {
			return err
		}
		batch.Outcome, batch.State, batch.Granted = backend.Decided, s, append(batch.Granted[:0], batch.Requests[0].Max)
		done = true
		return nil
	})
	return done && err == nil, err
}

func usualArgs(b *backend.Batch) []any {
	d, n := b.Definition, b.Requests[0].Max
	first := max((d.Anchor+d.Period-1)/d.Period, 0) // the number that the line at Anchor has, counted from before 1970
	refill := int64(mostMissing)
	if d.Refill > 0 {
		refill = min(d.Refill, mostMissing)
	}
	lines := (mostMissing + refill - 1) / refill
	return []any{
		d.Name, keyBytes(b.Key), d.Version, int64(d.Kind), d.Anchor, d.Period, d.Refill,
		d.Anchor - first*d.Period, first, n, lines, refill, d.Permits - n,
	}
}
