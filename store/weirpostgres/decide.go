package weirpostgres

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/weir-go/weir/store/backend"
)

// Decide decides all batches in one statement if it can, or in two: see take.
func (b *Backend) Decide(ctx context.Context, batches []*backend.Batch) error {
	batches = backend.Valid(batches, "weirpostgres: decide", func(batch *backend.Batch) error { return checkSchedule(batch.Definition) })
	takes, rest := b.split(batches)
	if err := (keyedStatement[*backend.Batch]{&b.locks, b.take, b.decide}).run(ctx, takes); err != nil {
		return err
	}
	decisions := keyedStatement[*backend.Batch]{&b.locks, b.decide, b.decide}
	if err := decisions.run(ctx, rest); err != nil {
		if len(takes) == 0 {
			return err
		}
		decisions.failAll(rest, err) // the takes have their permits
	}
	b.sweeper.decided(len(batches))
	return nil
}

// split returns the batches for the function take and those for the function decide.
func (b *Backend) split(batches []*backend.Batch) (takes, rest []*backend.Batch) {
	if b.locks.skips() {
		return nil, batches
	}
	for _, batch := range batches {
		if isTake(batch) && !b.rejections.readFirst(batch) {
			takes = append(takes, batch)
		} else {
			rest = append(rest, batch)
		}
	}
	return takes, rest
}

func (b *Backend) decide(ctx context.Context, batches []*backend.Batch, wait lockWaiting) error {
	n := len(batches)
	names, keys, readFirst := make([]string, n), make([][]byte, n), make([]bool, n)
	versions, kinds, permits, anchors := make([]int64, n), make([]int64, n), make([]int64, n), make([]int64, n)
	periods, refills, segments := make([]int64, n), make([]int64, n), make([]int64, n)
	first, last := make([]int32, n), make([]int32, n)
	requests := make([]int64, 0, requestNumbers*n)
	for i, batch := range batches {
		d := batch.Definition
		g, line := batch.Lines()
		if d.Every != 0 { // a calendar
			g.Segments = line
		}
		names[i], keys[i], readFirst[i] = d.Name, keyBytes(batch.Key), b.rejections.readFirst(batch)
		versions[i], kinds[i], permits[i], anchors[i] = d.Version, int64(d.Kind), d.Permits, g.Anchor
		periods[i], refills[i], segments[i] = g.Period, d.Refill, g.Segments
		first[i] = int32(len(requests) + 1)
		requests = appendRequests(requests, batch.Requests)
		last[i] = int32(len(requests))
	}
	args := []any{
		names, keys, versions, kinds, permits, anchors, periods, refills, segments, readFirst, first, last, requests, wait.skips, wait.timeout(),
	}
	return b.query(ctx, "decide", b.sql.decide, args, n, func(i int, rows pgx.Rows) error {
		var answer []int64
		if err := rows.Scan(&answer); err != nil {
			return err
		}
		return b.answered(batches[i], answer)
	})
}

// answered sets the answers of a batch.
func (b *Backend) answered(batch *backend.Batch, answer []int64) error {
	err := readAnswer(batch, answer)
	if err == nil {
		b.rejections.answered(batch)
	}
	return err
}
