package weirpostgres

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/weir-go/weir/rate"
	"github.com/weir-go/weir/store/backend"
)

// There are two ways to decide. The schema's function decide can decide everything. A batch with one request, which
// takes either n permits of a bucket or fixed window or none, is a single take. It is first sent as one plain statement,
// which costs the server about as much as any upsert, and half as much as the function. The statement writes the row or
// does nothing. If it does nothing, the function decides, in a second round trip. The statement does nothing if
//
//   - too few permits are available,
//   - the row is of another version of the definition, or a newer version exists, or the row has a floor,
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

// singleStatement returns the plain statement. settings is a subquery that calls set_config for this statement. Its
// parameters, other than those of the definition:
//
//	before        the time of a line before 1970, so that no negative number is divided
//	before_lines  the number of lines from before to the anchor
//	n             the permits that the request takes
//	most_lines    the number of lines after which every key is full; further lines are not counted, so that products cannot overflow
//	brought       the permits that come back on a line
//	most_missing  the largest number of missing permits with which the request is granted
func singleStatement(settings string) string {
	const returned = `least(greatest(excluded.line - s.line, 0), @most_lines) * @brought`
	return `insert into "weir".states as s (name, key, version, kind, anchor, period, refill, segments, line, missing, floor, written)
		select @name::text, @key::bytea, @version::bigint, @kind::bigint, @anchor::bigint, @period::bigint, @refill::bigint, 0,
			(c.t - @before::bigint) / @period - @before_lines::bigint, @n::bigint, 0, c.t
			from (select "weir".clock() as t from ` + settings + `) c
			where not exists (select from "weir".definitions d where d.name = @name::text and d.version > @version::bigint)
		on conflict (name, key) do update set line = greatest(s.line, excluded.line), written = greatest(s.written, excluded.written),
			missing = greatest(s.missing - ` + returned + `, 0) + @n,
			refunded = case when s.refunded > 0 then nullif(greatest(s.refunded - greatest(` + returned + ` - s.missing, 0), 0), 0) end
			where s.version = @version and s.floor = 0 and s.missing - ` + returned + ` <= @most_missing::bigint and excluded.written >= s.written - ` + maxBehind + `
		returning line, missing, coalesce(refunded, 0), written`
}

const (
	// maxOwed is the most that lines have to bring to a key: what is missing and what was refunded.
	maxOwed = 2 * rate.MaxDebt
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
	if len(b.Requests) != 1 || d.Kind != rate.TokenBucket && d.Kind != rate.FixedWindow {
		return false
	}
	r := b.Requests[0]
	return r.Op == backend.OpTake && r.Min == r.Max && 0 < r.Max && r.Max <= min(d.Permits, rate.MaxDebt) && !r.Block &&
		-maxScheduleNumber < d.Anchor && d.Anchor < maxScheduleNumber && d.Period < maxScheduleNumber
}

// decideSingle sends the plain statement. If the statement has done nothing, done is false and the batch is unchanged.
func (b *Backend) decideSingle(ctx context.Context, batch *backend.Batch, wait lockWaiting) (done bool, err error) {
	var s rate.State
	err = b.query(ctx, "decide", b.sql.decideSingle, append(singleArgs(batch), wait.timeout()), anyRows, func(_ int, rows pgx.Rows) error {
		if err := rows.Scan(&s.Line, &s.Missing, &s.Refunded, &batch.Now); err != nil {
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
	before := max((d.Anchor+d.Period-1)/d.Period, 0) // lines from before 1970 to the anchor
	brought := int64(maxOwed)
	if d.Refill > 0 {
		brought = min(d.Refill, maxOwed)
	}
	mostLines := (maxOwed + brought - 1) / brought
	return []any{
		d.Name, keyBytes(b.Key), d.Version, int64(d.Kind), d.Anchor, d.Period, d.Refill,
		d.Anchor - before*d.Period, before, n, mostLines, brought, d.Permits - n,
	}
}
