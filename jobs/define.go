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

// SetSemaphore makes a semaphore or changes it. It is in force at once, for all programs. To set what is set already does
// nothing, so call it when a program starts.
func (t *Throttler) SetSemaphore(ctx context.Context, name string, o SemaphoreOptions) error {
	return t.setOptions(ctx, name, o)
}

// SetFixedWindow makes a fixed window or changes it, as [Throttler.SetSemaphore] does. What has been counted still counts.
func (t *Throttler) SetFixedWindow(ctx context.Context, name string, o FixedWindowOptions) error {
	return t.setOptions(ctx, name, o)
}

// SetSlidingWindow makes a sliding window or changes it, as [Throttler.SetSemaphore] does. What has been counted still
// counts.
func (t *Throttler) SetSlidingWindow(ctx context.Context, name string, o SlidingWindowOptions) error {
	return t.setOptions(ctx, name, o)
}

// SetDynamicWindow makes a dynamic window or changes it, as [Throttler.SetSemaphore] does. What has been counted still
// counts.
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

// apply sets limiters in one transaction, and checks that those of the rules exist.
func (t *Throttler) applyDefinitions(ctx context.Context, settings []checkedDefinition, rules kindThrottles) error {
	var types, names []string
	for _, r := range rules {
		for _, u := range r.limits {
			if u.ref.Type != Mutex {
				types, names = append(types, string(u.ref.Type)), append(names, u.ref.Name)
			}
		}
	}
	if len(settings) == 0 && len(types) == 0 {
		return nil
	}
	settings = slices.Clone(settings) // in one order for all programs, so that they do not wait for each other
	slices.SortFunc(settings, func(a, b checkedDefinition) int {
		return cmp.Or(cmp.Compare(a.ref.Type, b.ref.Type), cmp.Compare(a.ref.Name, b.ref.Name))
	})
	var changed []int64
	err := pgx.BeginTxFunc(ctx, t.pool, readCommitted, func(tx pgx.Tx) error {
		for _, s := range settings {
			id, err := t.setLimiter(ctx, tx, s)
			if err != nil {
				return fmt.Errorf("set %v: %w", s.ref, err)
			}
			if id != 0 {
				changed = append(changed, id)
			}
		}
		rows, err := tx.Query(ctx, t.sql.unknown, types, names)
		if err != nil {
			return err
		}
		unknown, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (string, error) {
			var r Ref
			err := row.Scan(&r.Type, &r.Name)
			return r.String(), err
		})
		if err == nil && len(unknown) > 0 {
			err = fmt.Errorf("%w: %s: set it first",
				ErrUnknownLimiter, strings.Join(slices.Compact(unknown), ", "))
		}
		return err
	})
	if err != nil && !errors.Is(err, ErrUnknownLimiter) {
		return fmt.Errorf("jobs: %w", err)
	}
	if err == nil && len(changed) > 0 {
		// Jobs that wait were told when to come back by the old settings. If this fails they come then.
		_, _ = t.pool.Exec(ctx, t.sql.bringBackAll, changed)
	}
	return err
}

// Check returns an [ErrUnknownLimiter] that names the limiters that declarations name and the database does not have. A
// program that calls it when it starts learns at once what its jobs would fail with later.
func (t *Throttler) Check(ctx context.Context, declarations ...*Declaration) error {
	var rules kindThrottles
	for _, d := range declarations {
		rules = append(rules, parsedKindThrottle{parsedThrottle: d.parsed})
	}
	return t.applyDefinitions(ctx, nil, rules)
}

// set returns the limiter's number, or 0 if it was set to the same before.
func (t *Throttler) setLimiter(ctx context.Context, tx pgx.Tx, s checkedDefinition) (id int64, err error) {
	text, err := json.Marshal(s.options)
	if err != nil {
		return 0, err
	}
	err = tx.QueryRow(ctx, t.sql.setLimiter, string(s.ref.Type), s.ref.Name, string(text)).Scan(&id)
	if errors.Is(err, pgx.ErrNoRows) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	r, err := readRules(s.ref.Type, text)
	if err == nil && !s.ref.Type.hasSlots() { // what has been counted is kept for as long as it counts now
		_, err = tx.Exec(ctx, t.sql.extendExpiry, id, r.interval()+r.bucket)
	}
	return id, err
}

// An InUseError says why a limiter was not removed. It is an [ErrInUse].
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

// Remove removes a limiter with all its keys. While jobs hold slots of it or wait for it, it is not removed, and the error
// is an [*InUseError]. To remove what does not exist does nothing. Jobs that name a limiter that was removed fail with
// [ErrUnknownLimiter]; a mutex is made again by the next job that names it.
func (t *Throttler) Remove(ctx context.Context, limiter Ref) error {
	if limiter.Key != "" {
		return optionError("Key", short(limiter.Key), "must be empty, because a limiter is removed with all its keys")
	}
	used := &InUseError{Limiter: limiter}
	err := pgx.BeginTxFunc(ctx, t.pool, readCommitted, func(tx pgx.Tx) error {
		var id int64
		err := tx.QueryRow(ctx, t.sql.lockLimiter, string(limiter.Type), limiter.Name).Scan(&id)
		if errors.Is(err, pgx.ErrNoRows) {
			return nil
		}
		if err != nil {
			return err
		}
		// Locked, no key is granted to anybody, and the next statement sees who has it.
		if _, err := tx.Exec(ctx, t.sql.lockKeys, id); err != nil {
			return err
		}
		rows, err := tx.Query(ctx, t.sql.usedBy, id)
		if err != nil {
			return err
		}
		var job int64
		var holds bool
		if _, err := pgx.ForEachRow(rows, []any{&job, &holds}, func() error {
			if holds {
				used.Holders = append(used.Holders, job)
			} else {
				used.Waiters = append(used.Waiters, job)
			}
			return nil
		}); err != nil {
			return err
		}
		if len(used.Holders)+len(used.Waiters) > 0 {
			return used
		}
		_, err = tx.Exec(ctx, t.sql.remove, id)
		return err
	})
	if err != nil && !errors.Is(err, ErrInUse) {
		return fmt.Errorf("jobs: Remove %v: %w", limiter, err)
	}
	return err
}

// Release releases what an owner holds of a mutex or a semaphore, for an operator to call when no job comes to do it.
// owner is the text that [Limit.Owner] made. Release reports whether the owner held a slot. A job of the owner that is
// running and holds the slot is told by its context; see [ErrLost].
func (t *Throttler) Release(ctx context.Context, limiter Ref, owner string) (released bool, err error) {
	return t.releaseOwner(ctx, limiter, namedOwner+owner)
}

// ReleaseJob releases what a job holds of a mutex or a semaphore, as [Throttler.Release] does for an owner.
func (t *Throttler) ReleaseJob(ctx context.Context, limiter Ref, job int64) (released bool, err error) {
	return t.releaseOwner(ctx, limiter, ownerOf(job, ""))
}

func (t *Throttler) releaseOwner(ctx context.Context, limiter Ref, owner string) (bool, error) {
	var key int64
	err := t.pool.QueryRow(ctx, t.sql.releaseOwner, string(limiter.Type), limiter.Name, limiter.Key, owner).Scan(&key)
	if errors.Is(err, pgx.ErrNoRows) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("jobs: release %v: %w", limiter, err)
	}
	t.batcher.release(release{contended: []int64{key}}) // those who wait are brought back
	return true, nil
}
