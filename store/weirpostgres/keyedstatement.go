package weirpostgres

import (
	"context"
	"errors"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
)

// A keyedStatement is a statement about many keys.
//
// A row can be locked for long, for example by an operator's transaction that is still open. It must hold up neither
// the other keys of its statement nor later statements. Therefore, every statement sets lock_timeout for itself. When
// that expires, the statement has done nothing. The locked rows are then looked for without waiting, the other keys are
// sent without them, and the locked keys are sent one by one with a short wait. The outcome of a key whose row stays
// locked is Failed. For a while, such a key is sent apart from the others from the start: see recentLocks.
type keyedStatement[T any] struct {
	b       *Backend
	what    string // the operation, for errors
	probing string // see probeStatement
	check   func(T) error
	row     func(T) row
	send    func(context.Context, []T, time.Duration) error // sends one statement that waits so long for locks
	fail    func(T, error)                                  // sets the outcome Failed
}

// A row identifies the row of a key. The id is that of a lease.
type row struct{ table, name, key, id string }

const (
	// maxLockWait is how long a statement waits for locks if the call has no deadline. Otherwise it is half of the time
	// that the call has: the rest is for sending the other keys.
	maxLockWait = 5 * time.Second
	// minLockWait is the shortest wait of a statement about several keys. With a shorter one, a row that another
	// instance has just written would count as locked.
	minLockWait = 10 * time.Millisecond
	// minSingleWait is the shortest wait of a statement about one of several keys whose rows were locked.
	minSingleWait = 2 * time.Millisecond
)

var errLocked = errors.New("another session keeps the row of the key locked")

// lockWait returns how long the first statement of a call may wait for locks.
func lockWait(ctx context.Context) time.Duration {
	end, ok := ctx.Deadline()
	if !ok {
		return maxLockWait
	}
	return max(time.Until(end)/2, minLockWait)
}

// shorter returns wait divided by n, but at least minLockWait and at most half of the time that the call has left.
func shorter(ctx context.Context, wait, n time.Duration) time.Duration {
	wait = max(wait/n, minLockWait)
	if end, ok := ctx.Deadline(); ok {
		wait = min(wait, time.Until(end)/2)
	}
	return wait
}

// lockTimeout returns the value of the setting lock_timeout, where 0 would be no limit.
func lockTimeout(wait time.Duration) string {
	return strconv.FormatInt(max(wait.Milliseconds(), 1), 10)
}

// run sends all keys, in one statement if that works.
//
// The send methods return an error only if no key has an answer yet. Otherwise the error would lose the answers, and the
// permits that were taken with them. A later error, such as a broken connection, is the outcome of the keys that it hit.
func (q keyedStatement[T]) run(ctx context.Context, all []T) error {
	all = q.valid(all)
	wait := lockWait(ctx)
	free, locked, err := q.splitRemembered(ctx, all)
	if err != nil {
		return err
	}
	return inParts(q, free, locked,
		func(free []T) error { return q.sendDivided(ctx, free, wait) },
		func(locked []T) error { return q.sendOneByOne(ctx, locked, shorter(ctx, wait, 10)) })
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

// inParts sends first, then second. If first has answers, an error of second is not returned: it is the outcome of the
// keys of second.
func inParts[T any](q keyedStatement[T], first, second []T, sendFirst, sendSecond func([]T) error) error {
	if err := sendFirst(first); err != nil {
		return err
	}
	err := sendSecond(second)
	if err == nil || len(first) == 0 {
		return err
	}
	for _, x := range second {
		q.fail(x, err)
	}
	return nil
}

// sendHalves sends keys whose common statement has failed in two halves. Halves that fail are divided again, so that in
// the end the key that causes the failure is sent alone.
func (q keyedStatement[T]) sendHalves(ctx context.Context, all []T, wait time.Duration) error {
	send := func(half []T) error { return q.sendDivided(ctx, half, wait) }
	middle := len(all) / 2
	return inParts(q, all[:middle:middle], all[middle:], send, send)
}

// sendDivided sends one statement. If it fails because of some keys, it sends the others without them.
func (q keyedStatement[T]) sendDivided(ctx context.Context, all []T, wait time.Duration) error {
	if len(all) == 0 {
		return nil
	}
	err := q.send(ctx, all, wait)
	switch {
	case codeOf(err) == lockNotAvailable:
		return q.sendAroundLocked(ctx, all, wait)
	case !keyError(err):
		return err
	case len(all) > 1:
		return q.sendHalves(ctx, all, wait)
	}
	q.fail(all[0], err)
	return nil
}

// sendAroundLocked continues after a statement whose wait for a lock has expired.
func (q keyedStatement[T]) sendAroundLocked(ctx context.Context, all []T, wait time.Duration) error {
	isLocked, _, err := q.probe(ctx, all)
	if err != nil {
		return err
	}
	var free, locked []T
	for i, x := range all {
		if isLocked[i] {
			locked = append(locked, x)
			q.b.locks.remember(q.row(x))
		} else {
			free = append(free, x)
		}
	}
	switch {
	case len(all) == 1 && len(locked) == 1: // the statement has waited for it already
		q.fail(all[0], q.b.explain("lock", errLocked))
		return nil
	case len(all) == 1: // it has become free since
		return q.sendOneByOne(ctx, all, shorter(ctx, wait, 10))
	case len(locked) == 0: // a row that another session is inserting cannot be seen
		return q.sendHalves(ctx, all, shorter(ctx, wait, 10))
	}
	return inParts(q, free, locked,
		func(free []T) error { return q.sendDivided(ctx, free, shorter(ctx, wait, 2)) },
		func(locked []T) error { return q.sendOneByOne(ctx, locked, shorter(ctx, wait, 10)) })
}

// sendOneByOne sends keys whose rows were locked a moment ago. The keys share the wait, so that a row that stays locked
// does not take the time of the other keys. If the call would end before all are sent, the rest fails; the order is
// random, so that it is not always the same keys.
func (q keyedStatement[T]) sendOneByOne(ctx context.Context, all []T, wait time.Duration) error {
	each := max(wait/time.Duration(max(len(all), 1)), minSingleWait)
	end := time.Now().Add(lockWait(ctx))
	for sent, i := range rand.Perm(len(all)) {
		err := errLocked
		if time.Now().Before(end) {
			err = q.send(ctx, all[i:i+1], each)
		}
		switch {
		case err == nil:
			continue
		case errors.Is(err, errLocked) || codeOf(err) == lockNotAvailable:
			q.b.locks.remember(q.row(all[i]))
			err = q.b.explain("lock", errLocked)
		case !keyError(err) && sent == 0:
			return err
		}
		q.fail(all[i], err)
	}
	return nil
}

// probe returns which rows are locked, without waiting for them, and which do not exist or are being inserted by another
// session.
func (q keyedStatement[T]) probe(ctx context.Context, all []T) (locked, unseen []bool, err error) {
	names, keys, ids := make([]string, len(all)), make([][]byte, len(all)), make([][]byte, len(all))
	for i, x := range all {
		r := q.row(x)
		names[i], keys[i], ids[i] = r.name, keyBytes(r.key), keyBytes(r.id)
	}
	locked, unseen = make([]bool, len(all)), make([]bool, len(all))
	return locked, unseen, q.b.query(ctx, "lock", q.probing, []any{names, keys, ids}, anyRows, func(_ int, rows pgx.Rows) error {
		var i int
		var seen bool
		if err := rows.Scan(&i, &seen); err != nil {
			return err
		}
		if i < 1 || i > len(all) {
			return errAnswer
		}
		locked[i-1], unseen[i-1] = seen, !seen
		return nil
	})
}

// splitRemembered divides the keys into free and locked ones. A key is locked if its row was locked lately, and is still
// locked or cannot be seen. A row that cannot be seen may be one that another session is inserting: every statement with
// that key would wait for the session.
func (q keyedStatement[T]) splitRemembered(ctx context.Context, all []T) (free, locked []T, err error) {
	if !q.b.locks.any() {
		return all, nil, nil
	}
	remembered := make([]bool, len(all))
	var suspects []T
	for i, x := range all {
		if remembered[i] = q.b.locks.has(q.row(x)); remembered[i] {
			suspects = append(suspects, x)
		}
	}
	if len(suspects) == 0 {
		return all, nil, nil
	}
	isLocked, unseen, err := q.probe(ctx, suspects)
	if err != nil {
		return nil, nil, err
	}
	suspect := 0
	for i, x := range all {
		switch {
		case !remembered[i]:
			free = append(free, x)
			continue
		case isLocked[suspect] || unseen[suspect]:
			locked = append(locked, x)
		default:
			free = append(free, x)
		}
		suspect++
	}
	return free, locked, nil
}
