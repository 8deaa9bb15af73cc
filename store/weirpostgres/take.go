package weirpostgres

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/weir-go/weir/rate"
	"github.com/weir-go/weir/store/backend"
)

// There are two ways to decide. The schema's function decide can decide everything. The function take decides batches with one request
// that takes permits of a bucket or fixed window, as most do. Each of them is sent with all such batches of the call, in a statement
// that locks rows also for rejections. Therefore, keys that are rejected go to the function decide: see recentRejections. So
// do all keys for a while after a row was locked for long, because take cannot skip it.

// isTake reports whether the function take can decide a batch.
func isTake(b *backend.Batch) bool {
	d := b.Definition
	if len(b.Requests) != 1 || d.Kind != rate.TokenBucket && d.Kind != rate.FixedWindow {
		return false
	}
	r := b.Requests[0]
	return r.Op == backend.OpTake && 0 < r.Min && r.Min <= r.Max && r.Max <= min(d.Permits, rate.MaxDebt)
}

// take sends a statement about takes. It does not decide by a definition that is not stored; then the outcome is undecided.
func (b *Backend) take(ctx context.Context, takes []*backend.Batch, wait lockWaiting) error {
	if wait.skips {
		return b.decide(ctx, takes, wait)
	}
	n := len(takes)
	names, keys, versions := make([]string, n), make([][]byte, n), make([]int64, n)
	lowest, highest, blocks := make([]int64, n), make([]int64, n), make([]bool, n)
	for i, batch := range takes {
		r := batch.Requests[0]
		names[i], keys[i], versions[i] = batch.Definition.Name, keyBytes(batch.Key), batch.Definition.Version
		lowest[i], highest[i], blocks[i] = r.Min, r.Max, r.Block
	}
	args := []any{names, keys, versions, lowest, highest, blocks, wait.timeout()}
	answers, taken := make([][]int64, n), make([][]int64, 0, n)
	err := b.query(ctx, "decide", b.sql.take, args, n, func(i int, rows pgx.Rows) error {
		var answer []int64
		err := rows.Scan(&answer)
		switch {
		case err != nil:
			return err
		case i == 0:
			clear(answers)
			taken = taken[:0]
		}
		if len(answer) > 0 && -int64(n) <= answer[0] && answer[0] < 0 {
			answers[-answer[0]-1] = answer[1:]
		} else {
			taken = append(taken, answer)
		}
		return nil
	})
	if err != nil {
		return err
	}
	for i, batch := range takes {
		answer := answers[i]
		if answer == nil {
			if len(taken) == 0 {
				return b.explain("decide", errAnswer)
			}
			answer, taken = append(taken[0], highest[i]), taken[1:]
		}
		if err := b.answered(batch, answer); err != nil {
			return b.explain("decide", err)
		}
	}
	return nil
}
