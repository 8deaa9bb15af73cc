package jobs

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/weir-go/weir/internal/validate"
)

// Set creates limiters or changes their options, all of them or none, for all programs. After it has returned, no job is granted by
// the old options. Call it when a program starts: a limiter that already has these options stays as it is. Executions that a
// window counts at a change still count. Earlier ones are forgotten, also if the new interval is longer.
func (t *Throttler) Set(ctx context.Context, definitions ...Definition) error {
	var p validate.Problems
	parsed := checkDefinitions(&p, "definitions", definitions)
	if err := p.Err("jobs"); err != nil {
		return err
	}
	return t.applyDefinitions(ctx, parsed, nil)
}

// applyDefinitions sets limiters in one transaction, and checks that the limiters of the throttles exist.
func (t *Throttler) applyDefinitions(ctx context.Context, definitions map[Ref]Definition, throttles kindThrottles) error {
	var types, names []string
	for _, p := range throttles {
		for _, l := range p.limits {
			if l.ref.Type != Mutex {
				types, names = append(types, string(l.ref.Type)), append(names, l.ref.Name)
			}
		}
	}
	if len(definitions) == 0 && len(types) == 0 {
		return nil
	}
	// The order is the same in all programs, so that they do not deadlock. A batch locks the keys of all limiters by their IDs.
	refs := slices.SortedFunc(maps.Keys(definitions), func(a, b Ref) int {
		return cmp.Or(cmp.Compare(a.Type, b.Type), cmp.Compare(a.Name, b.Name))
	})
	changed := map[int64]int64{} // limiters, and for how long executions count, µs; 0: for no longer than before
	err := inTransaction(ctx, t.pool, func(tx pgx.Tx) error {
		clear(changed)
		for _, ref := range refs {
			if err := t.setLimiter(ctx, tx, ref, definitions[ref], changed); err != nil {
				return fmt.Errorf("set %v: %w", ref, err)
			}
		}
		var unknown []string
		var ref Ref
		add := func() { unknown = append(unknown, ref.String()) }
		err := query(ctx, tx, eachRow(add, &ref.Type, &ref.Name), t.sql.Unknown, types, names)
		if err == nil && len(unknown) > 0 {
			err = fmt.Errorf("%w: %s: set it first",
				ErrUnknownLimiter, strings.Join(slices.Compact(unknown), ", "))
		}
		return err
	})
	if err != nil && !errors.Is(err, ErrUnknownLimiter) {
		return fmt.Errorf("jobs: %w", err)
	}
	if err != nil || len(changed) == 0 {
		return err
	}
	// A batch that had locked a key before the transaction above ended has read the old options. After this, it has ended.
	for limiter, counts := range changed {
		if err := extendExpiry(ctx, t.pool, t.sql, limiter, counts); err != nil {
			return fmt.Errorf("jobs: the limiters are set, and jobs of this moment may have been granted the old limits: %w", err)
		}
	}
	// Waiting jobs come back at a time that follows from the old options. They are brought back to ask again now. If
	// this fails, and for jobs that are being snoozed, a Throttler does so later; see lookAfterWaiters.
	_, _ = t.pool.Exec(ctx, t.sql.BringBackOutdated)
	return nil
}

// Check returns an [ErrUnknownLimiter] if declarations name limiters that the database does not have. A program that calls
// it when it starts sees the mistake before its jobs fail.
func (t *Throttler) Check(ctx context.Context, declarations ...*Declaration) error {
	var throttles kindThrottles
	for _, d := range declarations {
		throttles = append(throttles, parsedKindThrottle{parsedThrottle: d.parsed})
	}
	return t.applyDefinitions(ctx, nil, throttles)
}

// setLimiter sets a limiter, and adds it to changed if it had other options before.
func (t *Throttler) setLimiter(ctx context.Context, tx pgx.Tx, ref Ref, d Definition, changed map[int64]int64) error {
	text, err := json.Marshal(d.options())
	if err != nil {
		return err
	}
	var id int64
	var stored []byte
	err = tx.QueryRow(ctx, t.sql.StoredOptions, string(ref.Type), ref.Name).Scan(&stored)
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return err
	}
	err = tx.QueryRow(ctx, t.sql.SetLimiter, string(ref.Type), ref.Name, string(text)).Scan(&id)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil
	}
	if err != nil {
		return err
	}
	r := d.rules(ref.Type).window
	old, err := readRules(ref.Type, stored)
	if err == nil && r.Bucket == old.window.Bucket && r.Buckets <= old.window.Buckets {
		changed[id] = 0
		return nil
	}
	changed[id] = r.Interval() + r.Bucket
	return extendExpiry(ctx, tx, t.sql, id, changed[id])
}

// extendExpiry has all keys of a limiter kept for a duration, and waits for batches that have locked them. Outside of a
// transaction, it locks a thousand at a time.
func extendExpiry(ctx context.Context, db querier, sql *statements, limiter, counts int64) error {
	last := int64(0)
	for from := int64(-1); last > from; {
		from = last
		if err := query(ctx, db, eachRow(func() {}, &last), sql.ExtendExpiry, limiter, counts, from); err != nil {
			return err
		}
	}
	return nil
}

// An InUseError is the error of [Throttler.Remove] for a limiter in use.
type InUseError struct {
	Limiter Ref
	Holders []int64 // jobs that hold slots
	Waiters []int64 // jobs that come back to ask for it
}

func (e *InUseError) Error() string {
	return fmt.Sprintf("jobs: limiter in use: %v: jobs that hold it: %d, jobs that wait for it: %d", e.Limiter, len(e.Holders), len(e.Waiters))
}

// Remove removes a limiter with all its keys. If jobs hold slots of it or wait for it, Remove changes nothing and
// returns an [*InUseError]. If the limiter does not exist, nothing happens. Jobs that name a removed limiter fail with
// [ErrUnknownLimiter], but a mutex is made again by the next job that names it.
func (t *Throttler) Remove(ctx context.Context, limiter Ref) error {
	if limiter.Key != "" {
		var p validate.Problems
		p.Add("Key", short(limiter.Key), "must be empty, because a limiter is removed with all its keys")
		return p.Err("jobs")
	}
	used := &InUseError{Limiter: limiter}
	err := inTransaction(ctx, t.pool, func(tx pgx.Tx) error {
		used.Holders, used.Waiters = nil, nil
		var id int64
		err := tx.QueryRow(ctx, t.sql.LockLimiter, string(limiter.Type), limiter.Name).Scan(&id)
		if errors.Is(err, pgx.ErrNoRows) {
			return nil
		}
		if err != nil {
			return err
		}
		// While the keys are locked, no job is granted one, so the statement after this sees every holder.
		if _, err := tx.Exec(ctx, t.sql.LockKeys, id); err != nil {
			return err
		}
		var job int64
		var holds bool
		add := func() {
			if holds {
				used.Holders = append(used.Holders, job)
			} else {
				used.Waiters = append(used.Waiters, job)
			}
		}
		if err := query(ctx, tx, eachRow(add, &job, &holds), t.sql.UsedBy, id); err != nil {
			return err
		}
		if len(used.Holders)+len(used.Waiters) > 0 {
			return used
		}
		_, err = tx.Exec(ctx, t.sql.Remove, id)
		return err
	})
	if err != nil && !errors.Is(err, used) {
		return fmt.Errorf("jobs: Remove %v: %w", limiter, err)
	}
	return err
}

// Release releases the slot that a holder has of a mutex or a semaphore, and reports whether it had one. It is for operators,
// when no job comes to release the slot. Of the holder, only Owner, the text that [Limit.Owner] made, or else Job is needed. If
// a job is running with the slot, its context ends with [ErrLost], unless it took the slot with [Acquire].
func (t *Throttler) Release(ctx context.Context, limiter Ref, holder Holder) (released bool, err error) {
	owner := ownerOf(holder.Job, holder.Owner)
	var key int64
	err = t.pool.QueryRow(ctx, t.sql.ReleaseOwner, string(limiter.Type), limiter.Name, limiter.Key, owner).Scan(&key)
	if errors.Is(err, pgx.ErrNoRows) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("jobs: release %v: %w", limiter, err)
	}
	t.batcher.release(release{contended: []int64{key}}) // brings back the jobs that wait
	return true, nil
}
