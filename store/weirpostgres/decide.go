package weirpostgres

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/weir-go/weir/rate"
	"github.com/weir-go/weir/store/backend"
)

// Decide decides all batches in one statement if it can, or in two: see takeStatement.
func (b *Backend) Decide(ctx context.Context, batches []*backend.Batch) error {
	rest, err := b.decideTakes(ctx, batches)
	if err != nil {
		return err
	}
	err = b.decisions.run(ctx, rest)
	if err != nil && len(rest) < len(batches) { // the others have their permits
		b.decisions.failAll(rest, err)
		err = nil
	}
	if err == nil {
		b.sweeper.decided(len(batches))
	}
	return err
}

func newDecisions(b *Backend) keyedStatement[*backend.Batch] {
	return keyedStatement[*backend.Batch]{
		b: b, what: "decide",
		check:  func(batch *backend.Batch) error { return checkSchedule(batch.Definition) },
		locked: func(batch *backend.Batch) bool { return batch.Outcome == locked },
		send:   b.decide,
		fail:   func(batch *backend.Batch, err error) { batch.Outcome, batch.Err = backend.Failed, err },
	}
}

func (b *Backend) decide(ctx context.Context, batches []*backend.Batch, wait lockWaiting) error {
	n := len(batches)
	names, keys, readFirst := make([]string, n), make([][]byte, n), make([]bool, n)
	versions, kinds, permits, anchors := make([]int64, n), make([]int64, n), make([]int64, n), make([]int64, n)
	periods, refills, segments := make([]int64, n), make([]int64, n), make([]int64, n)
	first, last := make([]int32, n), make([]int32, n)
	requests := make([]int64, 0, requestNumbers*n)
	all := make([]keyRejections, n)
	for i, batch := range batches {
		d, g := batch.Definition, linesOf(batch)
		all[i] = b.rejections.of(batch)
		names[i], keys[i], readFirst[i] = d.Name, keyBytes(batch.Key), all[i].readFirst(batch)
		versions[i], kinds[i], permits[i], anchors[i] = d.Version, int64(d.Kind), d.Permits, g.Anchor
		periods[i], refills[i], segments[i] = g.Period, d.Refill, g.Segments
		first[i] = int32(len(requests) + 1)
		requests = appendRequests(requests, batch.Requests)
		last[i] = int32(len(requests))
	}
	args := []any{
		names, keys, versions, kinds, permits, anchors, periods, refills, segments, readFirst, first, last, requests, wait.skips, wait.timeout(),
	}
	return b.query(ctx, "decide", b.sql.decide, args, len(batches), func(i int, rows pgx.Rows) error {
		return scanBatch(rows, batches[i], all[i])
	})
}

// linesOf returns the schedule that the function decide gets. Of a calendar, the segments are the line of its window.
func linesOf(batch *backend.Batch) rate.Schedule {
	g, line := batch.Lines()
	if batch.Definition.Every != 0 {
		g.Segments = line
	}
	return g
}

func scanBatch(rows pgx.Rows, batch *backend.Batch, rejections keyRejections) error {
	var n []int64
	if err := rows.Scan(&n); err != nil {
		return err
	}
	if err := readAnswer(batch, n); err != nil {
		return err
	}
	rejections.answered(batch)
	return nil
}
