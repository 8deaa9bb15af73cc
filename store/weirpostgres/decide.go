package weirpostgres

import (
	"context"
	"hash/maphash"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/weir-go/weir/store/backend"
)

// Decide decides all batches in one statement.
func (b *Backend) Decide(ctx context.Context, batches []*backend.Batch) error {
	good := batches
	for i, batch := range batches {
		if err := checkSchedule(batch.Definition); err != nil {
			batch.Outcome, batch.Err = backend.Failed, b.explain("decide", err)
			if len(good) == len(batches) {
				good = batches[:i:i]
			}
		} else if len(good) < len(batches) {
			good = append(good, batch)
		}
	}
	err := askSeparately(ctx, b, good, b.decisions)
	if err == nil {
		b.sweeper.decided(len(good))
	}
	return err
}

func (b *Backend) newDecisions() keyedStatement[*backend.Batch] {
	return keyedStatement[*backend.Batch]{
		locked: b.sql.lockedStates,
		row:    func(batch *backend.Batch) row { return row{"states", batch.Definition.Name, batch.Key, ""} },
		ask: func(ctx context.Context, batches []*backend.Batch, wait time.Duration) error {
			if len(batches) == 1 {
				return b.decideOne(ctx, batches[0], wait)
			}
			return b.decideMany(ctx, batches, wait)
		},
		fail: func(batch *backend.Batch, err error) { batch.Outcome, batch.Err = backend.Failed, err },
	}
}

func (b *Backend) decideOne(ctx context.Context, batch *backend.Batch, wait time.Duration) error {
	at := b.detours.of(batch)
	look := at.look(batch)
	if b.plain && !look && singleTake(batch) {
		begun := time.Now()
		done, err := b.decideSingle(ctx, batch, wait)
		if done || err != nil {
			return err
		}
		at.trouble()
		look = true // most likely it will be rejected
		wait = max(wait-time.Since(begun), minLockWait)
	}
	n := appendBatch(make([]int64, 0, header+perAsk*len(batch.Requests)), batch, b.async, look)
	args := []any{batch.Definition.Name, keyBytes(batch.Key), n, lockTimeout(wait)}
	return b.queryAll(ctx, "decide", b.sql.decide, args, 1, func(_ int, rows pgx.Rows) error {
		return scanBatch(rows, batch, at)
	})
}

func (b *Backend) decideMany(ctx context.Context, batches []*backend.Batch, wait time.Duration) error {
	names, keys := make([]string, len(batches)), make([][]byte, len(batches))
	first, last := make([]int32, len(batches)), make([]int32, len(batches))
	places := make([]detourCount, len(batches))
	var n []int64
	for i, batch := range batches {
		places[i] = b.detours.of(batch)
		names[i], keys[i] = batch.Definition.Name, keyBytes(batch.Key)
		first[i] = int32(len(n) + 1)
		n = appendBatch(n, batch, b.async, places[i].look(batch))
		last[i] = int32(len(n))
	}
	args := []any{names, keys, first, last, n, lockTimeout(wait)}
	return b.queryAll(ctx, "decide", b.sql.decideMany, args, len(batches), func(i int, rows pgx.Rows) error {
		return scanBatch(rows, batches[i], places[i])
	})
}

func scanBatch(rows pgx.Rows, batch *backend.Batch, at detourCount) error {
	var n []int64
	if err := rows.Scan(&n); err != nil {
		return err
	}
	if err := readAnswer(batch, n); err != nil {
		return err
	}
	at.remember(batch)
	return nil
}

// recentDetours remembers which keys were not simply granted something at their last request. For these keys the server
// reads the row before it locks it, so that a rejection locks and writes nothing. A key counts until it was granted
// something lookAhead times in a row, because a key that is asked for too much is granted something now and then. Keys
// with the same count mislead each other, which costs only a little time.
type recentDetours struct {
	seed   maphash.Seed
	places [4096]atomic.Int32
}

const lookAhead = 16

// A detourCount counts down to 0 while detours are not needed.
type detourCount struct{ left *atomic.Int32 }

func (r *recentDetours) init() { r.seed = maphash.MakeSeed() }

func (r *recentDetours) of(b *backend.Batch) detourCount {
	h := maphash.String(r.seed, b.Definition.Name) ^ maphash.String(r.seed, b.Key)*31
	return detourCount{&r.places[h%uint64(len(r.places))]}
}

// look reports whether to read the row first. A request that takes nothing never needs the lock.
func (p detourCount) look(b *backend.Batch) bool {
	return p.left.Load() > 0 || len(b.Requests) > 0 && b.Requests[0].Op == backend.OpTake && b.Requests[0].Max == 0
}

func (p detourCount) trouble() { p.left.Store(lookAhead) }

func (p detourCount) remember(b *backend.Batch) {
	if b.Outcome != backend.Decided || len(b.Granted) > 0 && b.Granted[0] == backend.Rejected {
		p.trouble()
	} else if n := p.left.Load(); n > 0 {
		p.left.CompareAndSwap(n, n-1)
	}
}

// Replace implements [backend.Backend] in one statement.
func (b *Backend) Replace(ctx context.Context, all []*backend.Replacement) error {
	good := make([]*backend.Replacement, 0, len(all))
	for _, r := range all {
		if err := checkSchedule(r.Definition); err != nil {
			r.Outcome, r.Err = backend.Failed, b.explain("replace", err)
		} else {
			good = append(good, r)
		}
	}
	return askSeparately(ctx, b, good, keyedStatement[*backend.Replacement]{
		locked: b.sql.lockedStates,
		row:    func(r *backend.Replacement) row { return row{"states", r.Definition.Name, r.Key, ""} },
		ask:    b.replaceTogether,
		fail:   func(r *backend.Replacement, err error) { r.Outcome, r.Err = backend.Failed, err },
	})
}

func (b *Backend) replaceTogether(ctx context.Context, all []*backend.Replacement, wait time.Duration) error {
	names, keys := make([]string, len(all)), make([][]byte, len(all))
	var was, is states
	for i, r := range all {
		names[i], keys[i] = r.Definition.Name, keyBytes(r.Key)
		was.add(r.Old)
		is.add(r.Next)
	}
	args := []any{names, keys, b.async, was.numbers, was.taken, is.numbers, is.taken, was.first, was.last, is.first, is.last, lockTimeout(wait)}
	return b.queryAll(ctx, "replace", b.sql.replace, args, len(all), func(i int, rows pgx.Rows) error {
		all[i].Outcome = backend.Decided
		return rows.Scan(&all[i].Done)
	})
}
