package limitertest

import (
	"context"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"time"

	"github.com/weir-go/weir/limiter"
)

func (p *probe) charger() limiter.Charger { return optional[limiter.Charger](p, "Charge") }

// charge charges the limiter. It expects that so many permits remain and, if none are missing, that it is full now.
func (p *probe) charge(n int, remaining int64, why string) limiter.Level {
	level, err := p.charger().Charge(p.ctx, n)
	if err != nil || level.Remaining != remaining || (level.Full == 0) != (remaining == int64(p.limits.Permits)) {
		p.fail(fmt.Sprintf("after Charge(%d), %d remain: %s", n, remaining, why), describeLevel(level, err))
	}
	p.settle()
	return level
}

func describeLevel(level limiter.Level, err error) string {
	if err != nil {
		return fmt.Sprintf("the error %q", err)
	}
	return fmt.Sprintf("%d remain, full in %v", level.Remaining, level.Full)
}

// fullAt expects that all permits are back d after the start, and not before, and that Charge says so.
func (p *probe) fullAt(d time.Duration, remaining int64, why string) {
	level := p.charge(0, remaining, why)
	want := d - time.Since(p.start)
	if diff, most := level.Full-want, max(2*p.s.Tolerance, p.s.Resolution); diff < -most || diff > most {
		p.fail(fmt.Sprintf("the limiter is full in %v: %s", want, why), describeLevel(level, nil))
	}
	p.untilJustBefore(d)
	if level, err := p.charger().Charge(p.ctx, 0); err != nil || level.Remaining == int64(p.limits.Permits) || level.Full <= 0 {
		p.fail("it is just too early for all to be back: "+why, describeLevel(level, err))
	}
	p.until(d)
	p.charge(0, int64(p.limits.Permits), "all are back: "+why)
}

// chargeFails expects that Charge fails with one of the errors, whatever the number, and returns no level.
func (p *probe) chargeFails(ctx context.Context, why string, targets ...error) {
	for _, n := range []int{1, 0, -1, math.MaxInt, math.MinInt} {
		level, err := p.charger().Charge(ctx, n)
		p.isError(limiter.Lease{}, err, fmt.Sprintf("Charge(%d): %s", n, why), targets...)
		if level != (limiter.Level{}) {
			p.fail("no level comes with an error: "+why, describeLevel(level, nil))
		}
	}
}

var chargeCases = []testCase{
	{name: "Charge takes permits",
		rule: "Charge 1", kinds: timedKinds, needs: Charge, run: func(p *probe) {
			p.charge(0, 4, "it is new")
			p.charge(3, 1, "it is new")
			p.rejected(2, "1 is left")
			p.granted(1, "1 is left")
			p.charge(0, 0, "all were taken")
		}},
	{name: "Charge takes more permits than there are, and nothing is granted until they have come back",
		rule: "Charge 1", kinds: []Kind{FixedWindow, SlidingWindow, Calendar}, needs: Charge, run: func(p *probe) {
			p.granted(1, "it is new")
			p.charge(9, -6, "3 were left")
			p.rejected(1, "6 are owed")
			p.fullAt(p.s.Unit, -6, "all were taken in one segment")
			p.granted(4, "all came back")
		}},
	{name: "a bucket pays a debt back refill by refill",
		rule: "Charge 1", kinds: []Kind{TokenBucket}, needs: Charge, limits: permits(4, 3), run: func(p *probe) {
			p.charge(9, -5, "4 were left")
			p.until(p.s.Unit)
			p.charge(0, -2, "3 came back")
			p.rejected(1, "2 are owed")
			p.fullAt(3*p.s.Unit, -2, "9 come back in three refills")
		}},
	{name: "Charge with a negative number gives back what is missing, and no more",
		rule: "Charge 2", kinds: timedKinds, needs: Charge, run: func(p *probe) {
			p.charge(-2, 4, "nothing is missing")
			p.charge(3, 1, "it is new")
			p.charge(-2, 3, "2 were given back")
			p.charge(math.MinInt, 4, "1 was missing")
			p.granted(4, "all are there")
			p.rejected(1, "and no more")
		}},
	{name: "permits that Charge gives back serve the queue",
		rule: "Charge 2", kinds: timedKinds, needs: Charge | Queue, run: func(p *probe) {
			p.granted(4, "it is new")
			w := p.acquire(3)
			p.waits(w, "all are taken")
			p.charge(-2, 2, "the waiter asks for 3")
			p.waits(w, "only 2 are free")
			level, err := p.charger().Charge(p.ctx, -2)
			if err != nil || level.Remaining < 1 {
				p.fail("after Charge(-2), 1 remains, or 4 until the waiter has its permits", describeLevel(level, err))
			}
			p.settle()
			p.served(w, "4 are free")
			p.charge(0, 1, "the waiter took 3")
		}},
	{name: "a sliding window gives back first what was taken first",
		rule: "Charge 2", kinds: []Kind{SlidingWindow}, needs: Charge, run: func(p *probe) {
			segment := p.s.Unit / 4
			p.charge(1, 3, "it is new")
			p.until(segment)
			p.charge(1, 2, "a second segment")
			p.until(2 * segment)
			p.charge(2, 0, "a third segment")
			p.charge(-3, 3, "those of the first two segments, and one of the third")
			p.fullAt(6*segment, 3, "one of the third segment is left")
		}},
	{name: "a sliding window in debt gives back first what was taken last",
		rule: "Charge 2", kinds: []Kind{SlidingWindow}, needs: Charge, run: func(p *probe) {
			segment := p.s.Unit / 4
			p.charge(4, 0, "it is new")
			p.until(segment)
			p.charge(1, -1, "a second segment")
			p.charge(-1, 0, "that of the second segment")
			p.fullAt(4*segment, 0, "those of the first segment are left")
		}},
	{name: "Charge of zero permits changes nothing",
		rule: "Charge 3", kinds: timedKinds, needs: Charge | Idle, run: func(p *probe) {
			p.charge(0, 4, "it is new")
			p.until(p.s.Unit * 23 / 10)
			p.charge(0, 4, "it is unused")
			p.idleSince(0, "it is unused")
		}},
	{name: "Charge neither waits nor is it rejected while callers wait",
		rule: "Charge 1", kinds: timedKinds, needs: Charge | Queue, run: func(p *probe) {
			p.granted(3, "it is new")
			w := p.acquire(2)
			p.waits(w, "1 is left")
			p.charge(1, 0, "it takes what the waiter waits for")
			p.charge(2, -2, "nothing was left")
			p.waits(w, "nothing is left")
			p.until(p.s.Unit)
			if p.s.Kind == TokenBucket {
				p.charge(0, 0, "4 of 6 came back, and the waiter took the 2 that were free then")
			} else {
				p.charge(0, 2, "all came back, and the waiter took 2")
			}
			p.served(w, "permits came back")
		}},
	{name: "Charge counts no lease",
		rule: "Charge 4", kinds: timedKinds, needs: Charge | Statistics, run: func(p *probe) {
			p.granted(1, "it is new")
			p.charge(1, 2, "3 were left")
			p.hasStatistics(2, 0, 1, 0, "1 was granted, and 1 charged")
			p.charge(9, -7, "2 were left")
			p.hasStatistics(0, 0, 1, 0, "7 are owed, and none is available")
			p.charge(-9, 2, "2 are missing")
			p.hasStatistics(2, 0, 1, 0, "9 were given back")
		}},
	{name: "Charge with a context that is done charges nothing",
		rule: "Charge 5", kinds: timedKinds, needs: Charge, run: func(p *probe) {
			p.chargeFails(endedContext(), "the context is done", context.Canceled)
			p.charge(0, 4, "nothing was taken")
		}},
	{name: "Charge of a closed limiter is ErrClosed",
		rule: "Charge 5", kinds: timedKinds, needs: Charge | Close, run: func(p *probe) {
			if err := p.l.(io.Closer).Close(); err != nil {
				p.fail("Close succeeds", err)
			}
			p.chargeFails(p.ctx, "it is closed", limiter.ErrClosed)
		}},
	{name: "an unlimited limiter has all permits, whatever is charged",
		rule: "Charge 6", kinds: []Kind{Unlimited}, needs: Charge, run: func(p *probe) {
			for _, n := range []int{5, 0, -5, math.MaxInt, math.MinInt} {
				if level, err := p.charger().Charge(p.ctx, n); err != nil || level != (limiter.Level{Remaining: math.MaxInt64}) {
					p.fail(fmt.Sprintf("after Charge(%d), math.MaxInt64 remain and all are there", n), describeLevel(level, err))
				}
			}
			p.hasStatistics(math.MaxInt64, 0, 0, 0, "nothing was granted")
		}},
	{name: "charges of many callers are all counted (ConcurrentSafe)",
		rule: "Charge 1", kinds: timedKinds, needs: Charge, limits: permits(1000, 1000), run: func(p *probe) {
			charger := p.charger()
			p.together(func(*rand.Rand) error {
				for range 10 {
					if _, err := charger.Charge(p.ctx, 3); err != nil {
						return err
					}
					if _, err := charger.Charge(p.ctx, -2); err != nil {
						return err
					}
				}
				return nil
			})
			p.charge(0, 1000-10*crowdSize, "each caller left 10 charged")
		}},
}
