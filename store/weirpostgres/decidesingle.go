package weirpostgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/weir-go/weir/store/backend"
)

// There are two ways to decide. The schema's function decide can decide everything. A single take, which is n permits of a
// bucket or fixed window or none, is first sent as one plain statement, which costs the server about as much as any
// upsert, and half as much as the function. It writes a row or does nothing. If it does nothing, the function decides, in
// a second round trip. That is so if
//
//   - too few permits are available,
//   - the row is of another version of the definition, or a newer one exists, or it has a refund floor,
//   - the server's clock has stepped back.
//
// Then the function decides the next requests about that key, too: see recentDetours.
//
// The statement reads the clock before it locks the row. If another session has written the row meanwhile, that time is
// behind the time in the row. Then time stands still: the decision is as if it had been made right after the other one. A
// clock that is further behind than patience has stepped back, or the wait was long; the function, which reads the clock
// with the row locked, decides.
//
// If the pool does not keep prepared statements, the server would plan the statement each time, which costs far more
// than the function; there the function decides everything.

// singleStatement returns the plain statement. $8 is a tick of the schedule from before 1970, so that no negative
// number is divided, and $9 is how many ticks it is before the anchor. After $11 ticks nothing is missing any more,
// whatever was: no more are counted, so the product does not overflow. first is what else must run before the row is
// written. $14 is lock_timeout.
func singleStatement(first string) string {
	const paid = `least(greatest(excluded.tick - s.tick, 0), $11) * $12`
	return `insert into "weir".states as s (name, key, version, kind, anchor, period, refill, segments, tick, missing, refund_floor, written)
		select $1::text, $2::bytea, $3::bigint, $4::bigint, $5::bigint, $6::bigint, $7::bigint, 0,
			(c.t - $8::bigint) / $6 - $9::bigint, $10::bigint, 0, c.t
			from (select "weir".clock() as t` + first + `) c
			where not exists (select from "weir".definitions d where d.name = $1::text and d.version > $3::bigint)
		on conflict (name, key) do update set tick = greatest(s.tick, excluded.tick), written = greatest(s.written, excluded.written),
			missing = greatest(s.missing - ` + paid + `, 0) + $10
			where s.version = $3 and s.refund_floor = 0 and s.missing - ` + paid + ` <= $13::bigint and excluded.written >= s.written - ` + patience + `
		returning tick, missing, written`
}

const (
	// maxMissing is the most that can be missing of a key.
	maxMissing = 1 << 51
	// maxScheduleNumber bounds how far from 0 the numbers of a schedule are that the plain statement computes with. All
	// reasonable ones are nearer.
	maxScheduleNumber = 1 << 60
	// patience is how long time can stand still, in µs. Waits for a row that another session writes are usually
	// shorter.
	patience = "100000"
)

// keepsStatements reports whether the pool keeps prepared statements.
func keepsStatements(pool *pgxpool.Pool) bool {
	return pool.Config().ConnConfig.DefaultQueryExecMode == pgx.QueryExecModeCacheStatement
}

// singleTake reports whether the plain statement can decide a batch.
func singleTake(b *backend.Batch) bool {
	d := b.Definition
	if len(b.Requests) != 1 || d.Kind != backend.KindTokenBucket && d.Kind != backend.KindFixedWindow {
		return false
	}
	a := b.Requests[0]
	return a.Op == backend.OpTake && a.Min == a.Max && 0 < a.Max && a.Max <= min(d.Permits, maxMissing) && !a.Block &&
		-maxScheduleNumber < d.Anchor && d.Anchor < maxScheduleNumber && d.Period < maxScheduleNumber
}

// decideSingle sends the plain statement. If that has done nothing, the batch is unchanged.
func (b *Backend) decideSingle(ctx context.Context, batch *backend.Batch, wait time.Duration) (done bool, err error) {
	s := backend.State{Schedule: batch.Definition.Schedule()}
	err = b.query(ctx, "decide", b.sql.decideSingle, append(singleArgs(batch), lockTimeout(wait)), func(rows pgx.Rows) error {
		if err := rows.Scan(&s.Tick, &s.Missing, &batch.Now); err != nil {
			return err
		}
		batch.Outcome, batch.State, batch.Granted = backend.Decided, s, append(batch.Granted[:0], batch.Requests[0].Max)
		done = true
		return nil
	})
	return done && err == nil, err
}

func singleArgs(b *backend.Batch) []any {
	d, n := b.Definition, b.Requests[0].Max
	first := max((d.Anchor+d.Period-1)/d.Period, 0) // the number of the tick at Anchor, counted from before 1970
	refill := int64(maxMissing)
	if d.Refill > 0 {
		refill = min(d.Refill, maxMissing)
	}
	lines := (maxMissing + refill - 1) / refill
	return []any{
		d.Name, keyBytes(b.Key), d.Version, int64(d.Kind), d.Anchor, d.Period, d.Refill,
		d.Anchor - first*d.Period, first, n, lines, refill, d.Permits - n,
	}
}
