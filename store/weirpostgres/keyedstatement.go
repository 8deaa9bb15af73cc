package weirpostgres

import (
	"context"
	"errors"
	"hash/maphash"
	"math/rand/v2"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/weir-go/weir/internal/clock"
)

// A row that another session has locked, such as one that an operator has updated in a transaction that is still open,
// must not hold up the other keys of its statement, nor the statements that follow on the same lane of the store. So
// every statement sets lock_timeout for itself. When it runs out, the statement has done nothing; the rows that are
// locked are looked for without waiting, the others are asked about without them, and the locked ones one by one and
// briefly. The outcome of a key whose row stays locked is Failed. For a while such a key is then asked about after the
// others from the start.

const (
	// maxLockWait is how long a statement waits for locks where the call has no deadline. Otherwise it is half of the
	// time that the call has: the rest is for asking about the other keys.
	maxLockWait = 5 * time.Second
	// minLockWait keeps short waits from mistaking an instance that has just written the row for a lock.
	minLockWait = 10 * time.Millisecond
	// minSingleWait is leastLockWait for a key that is asked about alone, after others whose rows were locked, too.
	minSingleWait = 2 * time.Millisecond
	// lockedFor is how long a key is asked about apart after its row was found locked.
	lockedFor = time.Second
)

var errLocked = errors.New("another session keeps the row of the key locked")

// lockWait is how long the first statement of a call may wait for locks.
func lockWait(ctx context.Context) time.Duration {
	end, ok := ctx.Deadline()
	if !ok {
		return maxLockWait
	}
	return max(time.Until(end)/2, minLockWait)
}

// lockTimeout is a wait as the setting lock_timeout has it, where 0 would be no limit.
func lockTimeout(wait time.Duration) string {
	return strconv.FormatInt(max(wait.Milliseconds(), 1), 10)
}

// statementLocked returns the statement that finds which rows of a table are locked, and which cannot be seen. It locks
// the others, which ends with the statement. condition is what makes a row s that of a u.
func statementLocked(table, condition string) string {
	of := ` exists (select from "weir".` + table + ` s where ` + condition
	return `select u.i::int,` + of + `)
		from unnest($1::text[], $2::bytea[], $3::bytea[]) with ordinality u(name, key, id, i)
		where not` + of + ` for no key update skip locked)`
}

// A row identifies the row of a key. The id is that of a lease.
type row struct{ table, name, key, id string }

// A keyedStatement is a statement about many keys.
type keyedStatement[T any] struct {
	locked string // see statementLocked
	row    func(T) row
	ask    func(context.Context, []T, time.Duration) error // one statement that waits so long for locks
	fail   func(T, error)                                  // sets the outcome Failed
}

// askSeparately asks about all keys, in one statement if that works. Like every function below, it returns an error
// only if no key has been answered. Otherwise the answers would be lost with what they took; therefore, a later error,
// such as a connection that breaks, is the outcome of the keys that it hit.
func askSeparately[T any](ctx context.Context, b *Backend, all []T, q keyedStatement[T]) error {
	wait := lockWait(ctx)
	free, held, err := splitRemembered(ctx, b, all, q)
	if err != nil {
		return err
	}
	return q.inParts(free, held,
		func(free []T) error { return askDivided(ctx, b, free, q, wait) },
		func(held []T) error { return askOneByOne(ctx, b, held, q, shorter(ctx, wait, 10)) })
}

// inParts asks about first, then about second.
func (q keyedStatement[T]) inParts(first, second []T, askFirst, askSecond func([]T) error) error {
	if err := askFirst(first); err != nil {
		return err
	}
	err := askSecond(second)
	if err == nil || len(first) == 0 {
		return err
	}
	q.failAll(second, err)
	return nil
}

// inHalves does in two steps what has failed in one: a key that fails the statement ends up alone.
func (q keyedStatement[T]) inHalves(all []T, ask func([]T) error) error {
	middle := len(all) / 2
	return q.inParts(all[:middle:middle], all[middle:], ask, ask)
}

func (q keyedStatement[T]) failAll(all []T, err error) {
	for _, x := range all {
		q.fail(x, err)
	}
}

// shorter returns wait divided by n, but at least leastLockWait: each time that a statement is divided its parts wait
// shorter, and a healthy key in the last ones would fail because another instance has just written its row. A context
// that ends soon shortens the wait further.
func shorter(ctx context.Context, wait, n time.Duration) time.Duration {
	wait = max(wait/n, minLockWait)
	if end, ok := ctx.Deadline(); ok {
		wait = min(wait, time.Until(end)/2)
	}
	return wait
}

// askDivided asks in one statement, and if the statement fails because of some keys, about the others without them.
func askDivided[T any](ctx context.Context, b *Backend, all []T, q keyedStatement[T], wait time.Duration) error {
	if len(all) == 0 {
		return nil
	}
	err := q.ask(ctx, all, wait)
	switch {
	case codeOf(err) == lockNotAvailable:
		return askAroundLocked(ctx, b, all, q, wait)
	case !keyErrors(err):
		return err
	case len(all) > 1:
		return q.inHalves(all, func(half []T) error { return askDivided(ctx, b, half, q, wait) })
	}
	q.fail(all[0], err)
	return nil
}

// askAroundLocked goes on after a statement that has waited so long for a lock in vain.
func askAroundLocked[T any](ctx context.Context, b *Backend, all []T, q keyedStatement[T], wait time.Duration) error {
	locked, _, err := lockedNow(ctx, b, all, q)
	if err != nil {
		return err
	}
	var free, held []T
	for i, x := range all {
		if locked[i] {
			held = append(held, x)
			b.locks.remember(q.row(x))
		} else {
			free = append(free, x)
		}
	}
	switch {
	case len(all) == 1 && len(held) == 1: // it was waited for
		q.fail(all[0], b.explain("lock", errLocked))
		return nil
	case len(all) == 1: // it has become free just now
		return askOneByOne(ctx, b, all, q, shorter(ctx, wait, 10))
	case len(held) == 0: // a row that another session is inserting is not seen
		return q.inHalves(all, func(half []T) error { return askDivided(ctx, b, half, q, shorter(ctx, wait, 10)) })
	}
	return q.inParts(free, held,
		func(free []T) error { return askDivided(ctx, b, free, q, shorter(ctx, wait, 2)) },
		func(held []T) error { return askOneByOne(ctx, b, held, q, shorter(ctx, wait, 10)) })
}

// askOneByOne asks about keys whose rows were locked a moment ago, one by one. They share the wait, so that one that stays
// locked does not keep the others from being asked about. So many keys that the call would end meanwhile are not all
// asked about; the order is random, so that these are not always the same ones.
func askOneByOne[T any](ctx context.Context, b *Backend, held []T, q keyedStatement[T], wait time.Duration) error {
	each := max(wait/time.Duration(max(len(held), 1)), minSingleWait)
	end := time.Now().Add(lockWait(ctx))
	for answered, i := range rand.Perm(len(held)) {
		err := errLocked
		if time.Now().Before(end) {
			err = q.ask(ctx, held[i:i+1], each)
		}
		switch {
		case err == nil:
			continue
		case errors.Is(err, errLocked) || codeOf(err) == lockNotAvailable:
			b.locks.remember(q.row(held[i]))
			err = b.explain("lock", errLocked)
		case !keyErrors(err) && answered == 0:
			return err
		}
		q.fail(held[i], err)
	}
	return nil
}

// lockedNow returns which rows are locked, without waiting for them, and which are not there or are just being inserted
// by another session.
func lockedNow[T any](ctx context.Context, b *Backend, all []T, q keyedStatement[T]) (locked, unseen []bool, err error) {
	names, keys, ids := make([]string, len(all)), make([][]byte, len(all)), make([][]byte, len(all))
	for i, x := range all {
		r := q.row(x)
		names[i], keys[i], ids[i] = r.name, keyBytes(r.key), keyBytes(r.id)
	}
	locked, unseen = make([]bool, len(all)), make([]bool, len(all))
	return locked, unseen, b.query(ctx, "lock", q.locked, []any{names, keys, ids}, func(rows pgx.Rows) error {
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

// splitRemembered returns as held the keys whose rows were found locked lately and are still locked, or cannot be seen:
// another session may still be inserting them, and a statement about all keys would wait for it at every call.
func splitRemembered[T any](ctx context.Context, b *Backend, all []T, q keyedStatement[T]) (free, held []T, err error) {
	if !b.locks.any() {
		return all, nil, nil
	}
	known := make([]bool, len(all))
	var suspects []T
	for i, x := range all {
		if known[i] = b.locks.has(q.row(x)); known[i] {
			suspects = append(suspects, x)
		}
	}
	if len(suspects) == 0 {
		return all, nil, nil
	}
	locked, unseen, err := lockedNow(ctx, b, suspects, q)
	if err != nil {
		return nil, nil, err
	}
	n := 0
	for i, x := range all {
		isHeld := known[i] && (locked[n] || unseen[n])
		if known[i] {
			n++
		}
		if isHeld {
			held = append(held, x)
		} else {
			free = append(free, x)
		}
	}
	return free, held, nil
}

// recentLocks remembers which keys had a locked row. Keys that share a place mislead each other, which costs a round
// trip.
type recentLocks struct {
	seed   maphash.Seed
	last   atomic.Int64       // when any was remembered
	places [4096]atomic.Int64 // when a row of that place was
}

func (r *recentLocks) init() { r.seed = maphash.MakeSeed() }

func (r *recentLocks) remember(x row) {
	now := max(int64(clock.Now()), 1)
	r.place(x).Store(now)
	r.last.Store(now)
}

// has reports whether the row was found locked a short time ago.
func (r *recentLocks) has(x row) bool { return recent(r.place(x).Load()) }

// any reports whether has may be true of any row.
func (r *recentLocks) any() bool { return recent(r.last.Load()) }

func recent(at int64) bool { return at != 0 && int64(clock.Now())-at < int64(lockedFor) }

func (r *recentLocks) place(x row) *atomic.Int64 {
	return &r.places[maphash.Comparable(r.seed, x)%uint64(len(r.places))]
}
