package weirpostgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/weir-go/weir/store/backend"
)

// There are two ways to decide. The schema's function decide can decide everything. A batch with one request, which
// takes either n permits of a bucket or fixed window or none, is a single take. It is first sent as one plain statement,
// which costs the server about as much as any upsert, and half as much as the function. The statement writes the row or
// does nothing. If it does nothing, the function decides, in a second round trip. The statement does nothing if
//
//   - too few permits are available,
//   - the row is of another version of the definition, or a newer version exists, or the row has a refund floor,
//   - the server's clock has stepped back.
//
// Then the function decides the next requests about that key, too: see recentRejections.
//
// The statement reads the clock before it locks the row. If another session has written the row meanwhile, the row has a
// later time, and the statement decides by the time in the row. If the statement's own time is earlier by more than
// maxBehind, the clock has stepped back or the wait was long; then the function decides, which reads the clock after it
// has locked the row.
//
// If the pool does not keep prepared statements, the server would plan the statement each time, which costs far more
// than the function; then the function decides everything.

// singleStatement returns the plain statement. settings are calls of set_config for this statement. The parameters from
// $8 on are:
//
//	$8   the time of a tick before 1970, so that no negative number is divided
//	$9   the number of ticks from $8 to the anchor
//	$10  the permits that the request takes
//	$11  the number of ticks after which every key is full; further ticks are not counted, so that products cannot overflow
//	$12  the permits that come back on a tick
//	$13  the largest number of missing permits with which the request is granted
//	$14  lock_timeout
func singleStatement(settings string) string {
	const returned = `least(greatest(excluded.tick - s.tick, 0), $11) * $12`
	return `insert into "weir".states as s (name, key, version, kind, anchor, period, refill, segments, tick, missing, refund_floor, written)
		select $1::text, $2::bytea, $3::bigint, $4::bigint, $5::bigint, $6::bigint, $7::bigint, 0,
			(c.t - $8::bigint) / $6 - $9::bigint, $10::bigint, 0, c.t
			from (select "weir".clock() as t, ` + settings + `) c
			where not exists (select from "weir".definitions d where d.name = $1::text and d.version > $3::bigint)
		on conflict (name, key) do update set tick = greatest(s.tick, excluded.tick), written = greatest(s.written, excluded.written),
			missing = greatest(s.missing - ` + returned + `, 0) + $10
			where s.version = $3 and s.refund_floor = 0 and s.missing - ` + returned + ` <= $13::bigint and excluded.written >= s.written - ` + maxBehind + `
		returning tick, missing, written`
}

const (
	// maxMissing is the most that can be missing of a key.
	maxMissing = 1 << 51
	// maxScheduleNumber bounds the anchor and the period that the plain statement computes with. All reasonable ones are
	// smaller.
	maxScheduleNumber = 1 << 60
	// maxBehind is in µs. Waits for a row that another session writes are usually shorter.
	maxBehind = "100000"
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
	r := b.Requests[0]
	return r.Op == backend.OpTake && r.Min == r.Max && 0 < r.Max && r.Max <= min(d.Permits, maxMissing) && !r.Block &&
		-maxScheduleNumber < d.Anchor && d.Anchor < maxScheduleNumber && d.Period < maxScheduleNumber
}

// decideSingle sends the plain statement. If the statement has done nothing, done is false and the batch is unchanged.
func (b *Backend) decideSingle(ctx context.Context, batch *backend.Batch, wait time.Duration) (done bool, err error) {
	s := backend.State{Schedule: batch.Definition.Schedule()}
	err = b.query(ctx, "decide", b.sql.decideSingle, append(singleArgs(batch), lockTimeout(wait)), anyRows, func(_ int, rows pgx.Rows) error {
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
	before := max((d.Anchor+d.Period-1)/d.Period, 0) // ticks from before 1970 to the anchor
	refill := int64(maxMissing)
	if d.Refill > 0 {
		refill = min(d.Refill, maxMissing)
	}
	ticks := (maxMissing + refill - 1) / refill
	return []any{
		d.Name, keyBytes(b.Key), d.Version, int64(d.Kind), d.Anchor, d.Period, d.Refill,
		d.Anchor - before*d.Period, before, n, ticks, refill, d.Permits - n,
	}
}
