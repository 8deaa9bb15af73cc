package weirpostgres

import (
	"bytes"
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/weir-go/weir/internal/clock"
	"github.com/weir-go/weir/rate"
	"github.com/weir-go/weir/store/backend"
)

// There are two ways to decide. The schema's function decide can decide everything. A batch with one request that takes
// permits of a bucket or fixed window, as most do, is first sent with all such batches as one plain statement, which costs
// the server about as much as any upsert of as many rows, and half as much as the function. For each key, the statement
// takes the most that is asked for and writes the row, or does nothing. It does nothing if
//
//   - too few permits are available,
//   - the row is of another version of the definition, or the definition has another version, or the row has a floor,
//   - the server's clock has stepped back.
//
// Then the function decides, in a second round trip, and also the next requests about that key: see recentRejections.
//
// The statement reads the clock before it locks the rows. If another session has written a row meanwhile, the row has a
// later time, and the statement decides by the time in the row. If the statement's own time is then earlier than the row's or the
// clock's by more than maxBehind, the clock has stepped back or the wait was long; then the function decides, which reads the clock
// after it has locked the row. Otherwise statements that have waited for one lock would each decide in a window that is past.
//
// If the pool does not keep prepared statements, the server would plan the statement each time, which costs far more
// than the function; then the function decides everything. So it does for a while after a row was locked for long, because the
// statement cannot skip it.

// takeStatement returns the plain statement. settings is a subquery that calls set_config for this statement. Each
// definition is read by a subquery of its own, so the rows are locked in the order of the arrays, as by all sessions. Lines are
// counted from before 1970, so that no negative number is divided. The arrays are subqueries, because the server plans the statement
// again for each call if it sees how long they are.
func takeStatement(settings string) string {
	const back = `"weir".brought(excluded.line - s.line, excluded.refill)`
	return `insert into "weir".states as s (name, key, version, kind, anchor, period, refill, segments, line, missing, floor, written)
		select u.name, u.key, d.version, d.kind, d.anchor, d.period, d.refill, 0,
			(c.t - d.anchor + d.before * d.period) / d.period - d.before, u.n, 0, c.t
			from (select "weir".clock() as t from ` + settings + `) c,
				unnest((select @names::text[]), (select @keys::bytea[]), (select @versions::bigint[]), (select @n::bigint[])) u(name, key, version, n),
				lateral (select d.*, greatest((d.anchor + d.period - 1) / d.period, 0) as before
					from "weir".definitions d where d.name = u.name and d.version = u.version and d.permits >= u.n limit 1) d
		on conflict (name, key) do update set line = greatest(s.line, excluded.line), written = greatest(s.written, excluded.written),
			missing = greatest(s.missing - ` + back + `, 0) + excluded.missing,
			refunded = case when s.refunded > 0 then nullif(greatest(s.refunded - greatest(` + back + ` - s.missing, 0), 0), 0) end
			where s.version = excluded.version and s.floor = 0 and excluded.written >= greatest(s.written, "weir".clock()) - ` + maxBehind + `
				and s.missing - ` + back + ` + excluded.missing <=
					(select d.permits from "weir".definitions d where d.name = excluded.name and d.version = excluded.version)
		returning name, key, line, missing, coalesce(refunded, 0), written`
}

const (
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

// isTake reports whether the plain statement can decide a batch.
func isTake(b *backend.Batch) bool {
	d := b.Definition
	if len(b.Requests) != 1 || d.Kind != rate.TokenBucket && d.Kind != rate.FixedWindow {
		return false
	}
	r := b.Requests[0]
	return r.Op == backend.OpTake && 0 < r.Min && r.Min <= r.Max && r.Max <= min(d.Permits, rate.MaxDebt) && !r.Block &&
		-maxScheduleNumber < d.Anchor && d.Anchor < maxScheduleNumber && d.Period < maxScheduleNumber
}

// decideTakes decides what the plain statement can decide, and returns the rest. After an error, no batch has an answer.
func (b *Backend) decideTakes(ctx context.Context, batches []*backend.Batch) (rest []*backend.Batch, err error) {
	end, ends := ctx.Deadline()
	if !b.prepares || b.lockExpired.Load() > int64(clock.Now()) || ends && time.Until(end) < 3*time.Duration(b.took.Load()) {
		return batches, nil // there may be no time for a ping of the pool, the statement, and the function after it
	}
	var takes []*backend.Batch
	for _, batch := range batches {
		if checkSchedule(batch.Definition) == nil && isTake(batch) && !b.rejections.of(batch).readFirst(batch) {
			takes = append(takes, batch)
		}
	}
	if len(takes) == 0 {
		return batches, nil
	}
	undecided, err := b.sendTakes(ctx, takes)
	switch {
	case codeOf(err) == lockNotAvailable && len(batches) == 1:
		b.decisions.failAll(batches, err)
		return nil, nil
	case codeOf(err) == lockNotAvailable:
		b.lockExpired.Store(int64(clock.Now() + recentLock))
		return batches, nil
	case keyError(err): // the function decides which key has caused it
		return batches, nil
	case err != nil:
		return nil, err
	}
	for _, batch := range batches { // which keeps their order
		if len(takes) > 0 && batch == takes[0] {
			takes = takes[1:]
			if len(undecided) == 0 || batch != undecided[0] {
				continue
			}
			undecided = undecided[1:]
			b.rejections.of(batch).remember() // most likely it will be rejected
		}
		rest = append(rest, batch)
	}
	return rest, nil
}

// sendTakes sends the plain statement, and returns the batches for which it has done nothing. They are unchanged.
func (b *Backend) sendTakes(ctx context.Context, takes []*backend.Batch) (undecided []*backend.Batch, err error) {
	names, keys := make([]string, len(takes)), make([][]byte, len(takes))
	versions, most := make([]int64, len(takes)), make([]int64, len(takes))
	for i, batch := range takes {
		names[i], keys[i], versions[i], most[i] = batch.Definition.Name, keyBytes(batch.Key), batch.Definition.Version, batch.Requests[0].Max
	}
	args := []any{names, keys, versions, most, lockWaiting{lockWait(ctx, len(takes)), false}.timeout()}
	answers := make([]takeAnswer, len(takes))
	n, err := b.queryAny(ctx, "decide", b.sql.take, args, func(i int, rows pgx.Rows) error {
		if i == len(answers) {
			return errAnswer
		}
		a := &answers[i]
		return rows.Scan(&a.name, &a.key, &a.state.Line, &a.state.Missing, &a.state.Refunded, &a.now)
	})
	if err != nil {
		return nil, err
	}
	answers = answers[:n] // in the order of the arrays
	for i, batch := range takes {
		if len(answers) == 0 || answers[0].name != names[i] || !bytes.Equal(answers[0].key, keys[i]) {
			undecided = append(undecided, batch)
			continue
		}
		batch.Outcome, batch.Now, batch.State = backend.Decided, answers[0].now, answers[0].state
		batch.Granted = append(batch.Granted[:0], most[i])
		answers = answers[1:]
	}
	if len(answers) > 0 {
		return nil, b.explain("decide", errAnswer)
	}
	return undecided, nil
}

// A takeAnswer is a row that the plain statement has written.
type takeAnswer struct {
	name  string
	key   []byte
	state rate.State
	now   int64
}
