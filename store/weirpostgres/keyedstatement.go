package weirpostgres

import (
	"context"
	"errors"
	"math/rand/v2"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir/internal/clock"
	"github.com/weir-go/weir/store/backend"
)

// A keyedStatement is a statement about many keys, which sends them together if that works.
//
// A row can be locked for long, for example by an operator's transaction that is still open. It must not hold up the other
// keys of its statement. Therefore, a statement whose wait for a lock has expired, and which has then done nothing, is sent
// again so that it does not wait: it leaves the keys undecided whose rows are locked, and each of these keys is sent in a statement of
// its own, which waits for a while. For a second, other statements do not wait either. Otherwise they wait, because most locks are
// those of instances that decide about the same keys, and end soon.
//
// All keys are sent one by one if the statement has failed because of one of them, or if it waits for a row that it cannot
// see, such as one that another session is inserting. The outcome of a key whose row stays locked is Failed.
type keyedStatement[T keyed] struct {
	locks *expiredWait
	send  sender[T]
	alone sender[T] // sends keys one by one
}

// A sender sends one statement.
type sender[T keyed] func(context.Context, []T, lockWaiting) error

// A keyed is what a statement does for one key.
type keyed interface {
	Answered() bool
	Fail(outcome backend.Outcome, err error)
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

var errLocked = errors.New("weirpostgres: another session keeps the row of the key locked")

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

// An expiredWait is until when statements skip locked rows, because a wait for a lock has expired.
type expiredWait struct{ until atomic.Int64 }

func (w *expiredWait) skips() bool { return w.until.Load() > int64(clock.Now()) }

// note notes the error of a statement.
func (w *expiredWait) note(err error) {
	if codeOf(err) == lockNotAvailable {
		w.until.Store(int64(clock.Now() + recentLock))
	}
}

// run sends valid keys. It returns an error only if no key has an answer. Otherwise the error would lose the answers, and the
// permits that were taken with them. A later error, such as a broken connection, is the outcome of the keys that it hit.
func (q keyedStatement[T]) run(ctx context.Context, all []T) error {
	if len(all) == 0 {
		return nil
	}
	shared := len(all) > 1
	err := q.send(ctx, all, lockWaiting{lockWait(ctx, len(all)), shared && q.locks.skips()})
	q.locks.note(err)
	if shared && codeOf(err) == lockNotAvailable {
		err = q.send(ctx, all, lockWaiting{lockWait(ctx, len(all)), true})
	}
	switch {
	case err == nil:
		var undecided []T
		for _, x := range all {
			if !x.Answered() {
				undecided = append(undecided, x)
			}
		}
		return q.sendOneByOne(ctx, undecided, len(undecided) < len(all))
	case codeOf(err) != lockNotAvailable && !keyError(err):
		return err
	case !shared:
		q.failAll(all, err)
		return nil
	}
	return q.sendOneByOne(ctx, all, false)
}

// failAll sets the outcome of keys that were sent in one statement.
func (q keyedStatement[T]) failAll(all []T, err error) {
	if codeOf(err) == lockNotAvailable {
		err = errLocked
	}
	for _, x := range all {
		x.Fail(backend.Failed, err)
	}
}

// sendOneByOne sends each key in a statement of its own. The keys share a quarter of the wait, so that rows that stay locked
// neither take the time of the other keys nor delay the answers for long. If the call would end before all are sent, the rest
// fails; the order is random, so that it is not always the same keys. answered reports whether other keys have answers.
func (q keyedStatement[T]) sendOneByOne(ctx context.Context, all []T, answered bool) error {
	wait := lockWait(ctx, 1)
	each := max(wait/4/time.Duration(max(len(all), 1)), minSingleWait)
	end := time.Now().Add(wait)
	for _, i := range rand.Perm(len(all)) {
		one := all[i : i+1]
		if time.Now().After(end) {
			q.failAll(one, errLocked)
			continue
		}
		err := q.alone(ctx, one, lockWaiting{each, false})
		q.locks.note(err)
		if err != nil && !answered && codeOf(err) != lockNotAvailable && !keyError(err) {
			return err
		}
		if answered = true; err != nil {
			q.failAll(one, err)
		}
	}
	return nil
}
