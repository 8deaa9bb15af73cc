package weirpostgres

import (
	"context"
	"errors"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/weir-go/weir/internal/clock"
)

// A keyedStatement is a statement about many keys, which sends them together if that works.
//
// A row can be locked for long, for example by an operator's transaction that is still open. It must not hold up the other
// keys of its statement. Therefore, a statement whose wait for a lock has expired, and which has then done nothing, is sent
// again so that it does not wait: it answers which rows are locked, and each of these keys is sent in a statement of its own,
// which waits for a while. For a second, other statements do not wait either. Otherwise they wait, because most locks are those
// of instances that decide about the same keys, and end soon.
//
// All keys are sent one by one if the statement has failed because of one of them, or if it waits for a row that it cannot
// see, such as one that another session is inserting. The outcome of a key whose row stays locked is Failed.
type keyedStatement[T any] struct {
	b      *Backend
	what   string                                        // the operation, for errors
	check  func(T) error                                 // what is wrong with a key, before anything is sent
	send   func(context.Context, []T, lockWaiting) error // sends one statement
	same   func(a, b T) bool                             // reports whether both are decided together; nil: never
	locked func(T) bool                                  // reports whether the statement has answered that the row is locked
	fail   func(T, error)                                // sets the outcome Failed
}

// A lockWaiting is how a statement waits for locks.
type lockWaiting struct {
	longest time.Duration
	skips   bool // locked rows are not waited for; the statements that renew and release leases ignore it
}

// timeout returns the value of the setting lock_timeout, where 0 would be no limit.
func (w lockWaiting) timeout() string { return strconv.FormatInt(max(w.longest.Milliseconds(), 1), 10) }

// recentLock is how long statements skip locked rows after a wait for a lock has expired.
const recentLock = time.Second

const (
	// maxLockWait is how long a statement waits for locks if the call has no deadline. Otherwise it is half of the time
	// that the call has: the rest is for sending keys one by one.
	maxLockWait = 5 * time.Second
	// minLockWait is the shortest wait of the first statement. With a shorter one, a row that another instance has just
	// written would count as locked.
	minLockWait = 10 * time.Millisecond
	// maxSharedWait is how long a statement about several keys waits at most: meanwhile it holds the rows that it has locked,
	// for which the statements of other instances wait, each holding others.
	maxSharedWait = 50 * time.Millisecond
	// minSingleWait is the shortest wait of a statement about one of several keys.
	minSingleWait = 2 * time.Millisecond
)

var errLocked = errors.New("another session keeps the row of the key locked")

// lockWait returns how long the first statement of a call, about so many keys, may wait for a lock.
func lockWait(ctx context.Context, keys int) time.Duration {
	wait := maxLockWait
	if end, ok := ctx.Deadline(); ok {
		wait = max(time.Until(end)/2, minLockWait)
	}
	if keys > 1 {
		wait = min(wait, maxSharedWait)
	}
	return wait
}

// run sends all keys. It returns an error only if no key has an answer. Otherwise the error would lose the answers, and the
// permits that were taken with them. A later error, such as a broken connection, is the outcome of the keys that it hit.
func (q keyedStatement[T]) run(ctx context.Context, all []T) error {
	all = q.valid(all)
	if len(all) == 0 {
		return nil
	}
	wait, skips := lockWait(ctx, len(all)), len(all) > 1 && q.b.lockExpired.Load() > int64(clock.Now())
	err := q.send(ctx, all, lockWaiting{wait, skips})
	if len(all) > 1 && codeOf(err) == lockNotAvailable {
		q.b.lockExpired.Store(int64(clock.Now() + recentLock))
		err = q.send(ctx, all, lockWaiting{lockWait(ctx, len(all)), true})
	}
	switch {
	case err == nil:
		var locked []T
		for _, x := range all {
			if q.locked(x) {
				locked = append(locked, x)
			}
		}
		return q.sendOneByOne(ctx, locked, len(locked) < len(all))
	case codeOf(err) != lockNotAvailable && !keyError(err):
		return err
	case len(all) == 1:
		q.failAll(all, err)
		return nil
	}
	return q.sendOneByOne(ctx, all, false)
}

// valid returns what passes the check, and sets the outcome of the rest.
func (q keyedStatement[T]) valid(all []T) []T {
	valid := all
	for i, x := range all {
		if err := q.check(x); err != nil {
			q.fail(x, q.b.explain(q.what, err))
			if len(valid) == len(all) {
				valid = all[:i:i] // a full slice, so that append copies and the caller's slice stays as it is
			}
		} else if len(valid) < len(all) {
			valid = append(valid, x)
		}
	}
	return valid
}

// groups returns what is sent in one statement each when keys are sent one by one.
func (q keyedStatement[T]) groups(all []T) (groups [][]T) {
	for i, x := range all {
		if i > 0 && q.same != nil && q.same(all[i-1], x) {
			groups[len(groups)-1] = append(groups[len(groups)-1], x)
		} else {
			groups = append(groups, []T{x})
		}
	}
	return groups
}

// failAll sets the outcome of what was sent in one statement.
func (q keyedStatement[T]) failAll(group []T, err error) {
	if codeOf(err) == lockNotAvailable {
		err = q.b.explain("lock", errLocked)
	}
	for _, x := range group {
		q.fail(x, err)
	}
}

// sendOneByOne sends each key in a statement of its own. The keys share a quarter of the wait, so that rows that stay locked
// neither take the time of the other keys nor delay the answers for long. If the call would end before all are sent, the rest
// fails; the order is random, so that it is not always the same keys. answered reports whether other keys have answers.
func (q keyedStatement[T]) sendOneByOne(ctx context.Context, all []T, answered bool) error {
	wait := lockWait(ctx, 1)
	groups := q.groups(all)
	each := max(wait/4/time.Duration(max(len(groups), 1)), minSingleWait)
	end := time.Now().Add(wait)
	for _, i := range rand.Perm(len(groups)) {
		if time.Now().After(end) {
			q.failAll(groups[i], q.b.explain("lock", errLocked))
			continue
		}
		err := q.send(ctx, groups[i], lockWaiting{each, false})
		if codeOf(err) == lockNotAvailable {
			q.b.lockExpired.Store(int64(clock.Now() + recentLock))
		}
		if err != nil && !answered && codeOf(err) != lockNotAvailable && !keyError(err) {
			return err
		}
		if answered = true; err != nil {
			q.failAll(groups[i], err)
		}
	}
	return nil
}
