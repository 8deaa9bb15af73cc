package jobs

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/weir-go/weir/internal/validate"
)

// SetSemaphore creates a semaphore or changes its options, at once and for all programs. Call it when a program starts: if
// the semaphore already has these options, nothing happens.
func (t *Throttler) SetSemaphore(ctx context.Context, name string, o SemaphoreOptions) error {
	return t.setOptions(ctx, name, o)
}

// SetFixedWindow creates or changes a fixed window, as [Throttler.SetSemaphore] does for a semaphore. Executions that have
// been counted still count.
func (t *Throttler) SetFixedWindow(ctx context.Context, name string, o FixedWindowOptions) error {
	return t.setOptions(ctx, name, o)
}

// SetSlidingWindow creates or changes a sliding window, as [Throttler.SetFixedWindow] does for a fixed window.
func (t *Throttler) SetSlidingWindow(ctx context.Context, name string, o SlidingWindowOptions) error {
	return t.setOptions(ctx, name, o)
}

// SetDynamicWindow creates or changes a dynamic window, as [Throttler.SetFixedWindow] does for a fixed window.
func (t *Throttler) SetDynamicWindow(ctx context.Context, name string, o DynamicWindowOptions) error {
	return t.setOptions(ctx, name, o)
}

func (t *Throttler) setOptions(ctx context.Context, name string, o limiterOptions) error {
	ref := Ref{Type: o.limiterType(), Name: name}
	var p validate.Problems
	checkName(&p, "name", name)
	o.check(&p)
	if err := p.Err("jobs"); err != nil {
		return fmt.Errorf("set %v: %w", ref, err)
	}
	return t.applyDefinitions(ctx, []checkedDefinition{{ref, o}}, nil)
}

// readCommitted is for transactions whose statements must see what others had written before a lock was granted, whatever
// the default of the pool or the database is.
var readCommitted = pgx.TxOptions{IsoLevel: pgx.ReadCommitted}

// applyDefinitions sets limiters in one transaction, and checks that the limiters of the throttles exist.
func (t *Throttler) applyDefinitions(ctx context.Context, definitions []checkedDefinition, throttles kindThrottles) error {
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
	// The order is the same in all programs, so that they do not deadlock.
	definitions = slices.SortedFunc(slices.Values(definitions), func(a, b checkedDefinition) int {
		return cmp.Or(cmp.Compare(a.ref.Type, b.ref.Type), cmp.Compare(a.ref.Name, b.ref.Name))
	})
	changed := false
	err := pgx.BeginTxFunc(ctx, t.pool, readCommitted, func(tx pgx.Tx) error {
		for _, d := range definitions {
			set, err := t.setLimiter(ctx, tx, d)
			if err != nil {
				return fmt.Errorf("set %v: %w", d.ref, err)
			}
			changed = changed || set
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
	if err == nil && changed {
		// Waiting jobs come back at a time that follows from the old options. They are brought back to ask again now. If
		// this fails, and for jobs that are being snoozed, a Throttler does so later; see lookAfterWaiters.
		_, _ = t.pool.Exec(ctx, t.sql.BringBackOutdated)
	}
	return err
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

// setLimiter reports whether the limiter had other options before.
func (t *Throttler) setLimiter(ctx context.Context, tx pgx.Tx, d checkedDefinition) (changed bool, err error) {
	text, err := json.Marshal(d.options)
	if err != nil {
		return false, err
	}
	var id int64
	err = tx.QueryRow(ctx, t.sql.SetLimiter, string(d.ref.Type), d.ref.Name, string(text)).Scan(&id)
	if errors.Is(err, pgx.ErrNoRows) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	r, err := readRules(d.ref.Type, text)
	if err == nil && !d.ref.Type.hasSlots() { // executions may count for longer now
		_, err = tx.Exec(ctx, t.sql.ExtendExpiry, id, r.interval()+r.bucket)
	}
	return true, err
}

// An InUseError is the error of [Throttler.Remove] for a limiter in use. It matches [ErrInUse].
type InUseError struct {
	Limiter Ref
	Holders []int64 // jobs that hold slots
	Waiters []int64 // jobs that come back to ask for it
}

func (e *InUseError) Error() string {
	var by []string
	if len(e.Holders) > 0 {
		by = append(by, "held by "+list(e.Holders))
	}
	if len(e.Waiters) > 0 {
		by = append(by, "waited for by "+list(e.Waiters))
	}
	return fmt.Sprintf("%v: %v is %s", ErrInUse, e.Limiter, strings.Join(by, " and "))
}

// Is reports whether target is ErrInUse.
func (e *InUseError) Is(target error) bool { return target == ErrInUse }

func list(jobs []int64) string {
	const most = 10
	var words []string
	for _, job := range jobs[:min(len(jobs), most)] {
		words = append(words, fmt.Sprint(job))
	}
	if len(jobs) > most {
		words = append(words, fmt.Sprintf("%d more", len(jobs)-most))
	}
	return "jobs " + strings.Join(words, ", ")
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
	err := pgx.BeginTxFunc(ctx, t.pool, readCommitted, func(tx pgx.Tx) error {
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
	if err != nil && !errors.Is(err, ErrInUse) {
		return fmt.Errorf("jobs: Remove %v: %w", limiter, err)
	}
	return err
}

// Release releases the slot that an owner holds of a mutex or a semaphore, and reports whether it held one. It is for
// operators, when no job comes to release the slot. owner is the text that [Limit.Owner] made. If a job of the owner is
// running with the slot, its context ends with [ErrLost].
func (t *Throttler) Release(ctx context.Context, limiter Ref, owner string) (released bool, err error) {
	return t.releaseOwner(ctx, limiter, namedOwner+owner)
}

// ReleaseJob releases the slot that a job holds of a mutex or a semaphore, as [Throttler.Release] does for an owner.
func (t *Throttler) ReleaseJob(ctx context.Context, limiter Ref, job int64) (released bool, err error) {
	return t.releaseOwner(ctx, limiter, ownerOf(job, ""))
}

func (t *Throttler) releaseOwner(ctx context.Context, limiter Ref, owner string) (bool, error) {
	var key int64
	err := t.pool.QueryRow(ctx, t.sql.ReleaseOwner, string(limiter.Type), limiter.Name, limiter.Key, owner).Scan(&key)
	if errors.Is(err, pgx.ErrNoRows) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("jobs: release %v: %w", limiter, err)
	}
	t.batcher.release(release{contended: []int64{key}}) // brings back the jobs that wait
	return true, nil
}
