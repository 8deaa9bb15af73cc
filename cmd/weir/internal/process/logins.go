package process

import (
	"context"
	"sync"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/limiter"
)

// How many wrong passwords are looked at: at first, and then one each period.
const (
	wrongOfOne   = 10 // of one address
	periodOfOne  = 30 * time.Second
	wrongOfAll   = 100 // of all addresses
	periodOfAll  = 3 * time.Second
	knownLogins  = 100 // the most that are remembered
	knownTime    = 24 * time.Hour
	maxAddresses = 10_000 // far more than wrongOfAll and periodOfAll let in
)

// logins bounds how fast the password for actions can be guessed: each address has a bucket of wrong passwords, and all
// addresses together have another one. A password is looked at only if both have a permit, which a right password gives
// back. So a guess beyond the limits tells nothing, not even if it is right.
//
// With that alone, an attacker who does not stop would use up the buckets and keep the operator out. So a user whose
// password was right at an address in the last day is known there, and has a separate bucket: guesses at other addresses,
// or under other names, do not use it up.
type logins struct {
	each  *limiter.PartitionedLimiter[source, source]
	total *limiter.TokenBucket

	mu    sync.Mutex
	known map[source]time.Time // when the password was last right
}

// A source is where passwords come from. User is empty for all users of an address that are not known there.
type source struct{ address, user string }

func newLogins() *logins {
	return &logins{
		each: weir.Must(limiter.NewPartitionedByKey(func(s source) source { return s }, limiter.FactoryFor[source](limiter.TokenBucketOptions{
			TokenLimit: wrongOfOne, TokensPerPeriod: 1, ReplenishmentPeriod: periodOfOne,
		}), &limiter.PartitionedOptions{MaxPartitions: maxAddresses})),
		total: weir.Must(limiter.NewTokenBucket(limiter.TokenBucketOptions{
			TokenLimit: wrongOfAll, TokensPerPeriod: 1, ReplenishmentPeriod: periodOfAll,
		})),
		known: make(map[source]time.Time),
	}
}

func (l *logins) close() {
	_ = l.each.Close()
	_ = l.total.Close()
}

// try calls right, unless there were too many wrong passwords, and returns its result. If wait is not 0, right was not
// called, and the next password can be tried after wait.
func (l *logins) try(ctx context.Context, address, user string, right func() bool) (ok bool, wait time.Duration) {
	known := source{address, user}
	from := source{address: address}
	var all limiter.Lease
	if l.isKnown(known) {
		from = known
	} else {
		var err error
		if all, err = l.total.TryAcquire(ctx, 1); err != nil || !all.Acquired() {
			return false, waitOf(all)
		}
	}
	one, err := l.each.TryAcquire(ctx, from, 1)
	if err != nil || !one.Acquired() {
		all.Refund()
		return false, waitOf(one)
	}
	if !right() {
		return false, 0
	}
	one.Refund()
	all.Refund()
	l.remember(known)
	return true, 0
}

// waitOf returns how long to wait after a rejection; a second if that is not known.
func waitOf(l limiter.Lease) time.Duration {
	if wait, ok := l.RetryAfter(); ok {
		return max(wait, 1)
	}
	return time.Second
}

func (l *logins) isKnown(s source) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	at, ok := l.known[s]
	return ok && time.Since(at) < knownTime
}

// remember makes a login known. If there are too many, the one that was not used for the longest time is forgotten.
func (l *logins) remember(s source) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.known[s] = time.Now()
	if len(l.known) <= knownLogins {
		return
	}
	oldest := s
	for other, at := range l.known {
		if at.Before(l.known[oldest]) {
			oldest = other
		}
	}
	delete(l.known, oldest)
}
