package weirpostgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/weir-go/weir/store/backend"
)

// Decide decides all batches in one statement.
func (b *Backend) Decide(ctx context.Context, batches []*backend.Batch) error {
	err := b.decisions.run(ctx, batches)
	if err == nil {
		b.sweeper.decided(len(batches))
	}
	return err
}

func (b *Backend) newDecisions() keyedStatement[*backend.Batch] {
	return keyedStatement[*backend.Batch]{
		b: b, what: "decide", probing: b.sql.probeStates,
		check: func(batch *backend.Batch) error { return checkSchedule(batch.Definition) },
		row:   func(batch *backend.Batch) row { return row{"states", batch.Definition.Name, batch.Key, ""} },
		send: func(ctx context.Context, batches []*backend.Batch, wait time.Duration) error {
			if len(batches) == 1 {
				return b.decideOne(ctx, batches[0], wait)
			}
			return b.decideMany(ctx, batches, wait)
		},
		fail: func(batch *backend.Batch, err error) { batch.Outcome, batch.Err = backend.Failed, err },
	}
}

func (b *Backend) decideOne(ctx context.Context, batch *backend.Batch, wait time.Duration) error {
	rejections := b.rejections.of(batch)
	readFirst := rejections.readFirst(batch)
	if b.prepares && !readFirst && singleTake(batch) {
		begun := time.Now()
		done, err := b.decideSingle(ctx, batch, wait)
		if done || err != nil {
			return err
		}
		rejections.remember()
		readFirst = true // most likely it will be rejected
		wait = max(wait-time.Since(begun), minLockWait)
	}
	n := appendBatch(make([]int64, 0, batchNumbers+requestNumbers*len(batch.Requests)), batch, b.async, readFirst)
	args := []any{batch.Definition.Name, keyBytes(batch.Key), n, lockTimeout(wait)}
	return b.query(ctx, "decide", b.sql.decide, args, 1, func(_ int, rows pgx.Rows) error {
		return scanBatch(rows, batch, rejections)
	})
}

func (b *Backend) decideMany(ctx context.Context, batches []*backend.Batch, wait time.Duration) error {
	names, keys := make([]string, len(batches)), make([][]byte, len(batches))
	first, last := make([]int32, len(batches)), make([]int32, len(batches))
	all := make([]keyRejections, len(batches))
	var n []int64
	for i, batch := range batches {
		all[i] = b.rejections.of(batch)
		names[i], keys[i] = batch.Definition.Name, keyBytes(batch.Key)
		first[i] = int32(len(n) + 1)
		n = appendBatch(n, batch, b.async, all[i].readFirst(batch))
		last[i] = int32(len(n))
	}
	args := []any{names, keys, first, last, n, lockTimeout(wait)}
	return b.query(ctx, "decide", b.sql.decideMany, args, len(batches), func(i int, rows pgx.Rows) error {
		return scanBatch(rows, batches[i], all[i])
	})
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
