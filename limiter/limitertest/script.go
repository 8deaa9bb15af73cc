package limitertest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/limiter/custom"
)

// A step of a script is a verb with operands. A script's steps stand between semicolons. An operand a is a name that the script
// gives to a waiter or a lease; n is a number of permits; t is a time since the start, in Units. A step with a prefix, such as
// "TokenBucket: take 4" or "!TokenBucket: take 4", is about that kind only, or about all others; "Zeros:" is about limiters
// that grant zero permits.
type step struct {
	text  string
	words []string // the verb and the operands
	inner string   // a script within braces
}

// verbs are what a script can say, and "refund n {…}": a chain takes n permits, carries out a script with commas for semicolons,
// and refunds them, because its second limiter rejects.
var verbs = map[string]func(p *probe, s step){
	// take n, take a n: TryAcquire is granted. deny n, deny a n: it is rejected. take-plain n, deny-plain n: and the lease says
	// nothing more.
	"take": func(p *probe, s step) { p.named[s.word(1)] = p.granted(s.n(-1)) },
	"deny": func(p *probe, s step) { p.named[s.word(1)] = p.rejected(s.n(-1)) },
	"take-plain": func(p *probe, s step) {
		l := p.granted(s.n(1))
		if p.saysNoRetry(l); l.Reason() != "" {
			p.fail("an acquired lease has no reason", describe(l, nil))
		}
	},
	"deny-plain": func(p *probe, s step) {
		if l := p.rejected(s.n(1)); l.Reason() != "" || l.Permits() != 0 {
			p.fail("a TryAcquire that found too few permits has no reason, and no permits", describe(l, nil))
		}
	},
	// get n: Acquire is granted at once. refuse n R, refuse a n R: it is rejected at once, with that reason. wait a n: it waits.
	"get": func(p *probe, s step) { p.served(p.acquire(s.n(1))) },
	"refuse": func(p *probe, s step) {
		w := p.acquire(s.n(-2))
		p.asked[s.word(1)] = w
		p.rejectedWith(w, reasons[s.word(-1)])
	},
	"wait": func(p *probe, s step) {
		w := p.acquire(s.n(2))
		p.asked[s.word(1)] = w
		p.waits(w)
	},
	"waits": func(p *probe, s step) { p.waits(p.waiter(s)) },
	// served a: a was granted. served a t: and that at the grid line t.
	"served": func(p *probe, s step) {
		w := p.waiter(s)
		p.served(w)
		if len(s.words) > 2 {
			if late := w.ended.Sub(p.start) - p.time(s, 2); late != 0 {
				p.note("it is served at the grid line", late.String()+" late")
			}
		}
	},
	"rejected": func(p *probe, s step) { p.rejectedWith(p.waiter(s), reasons[s.word(2)]) },
	// cancel a: the context of a ends, and a leaves at once, with the cause.
	"cancel": func(p *probe, s step) {
		w := p.waiter(s)
		w.cancel(errCause)
		p.settle()
		p.returns(w)
		p.isError(w.lease, w.err, "context")
	},
	"free":  func(p *probe, s step) { p.release(p.named[s.word(1)]) },
	"close": func(p *probe, _ step) { p.close() },
	// at t: waits until then. before t: until just before. With +t, t counts from the last mark.
	"at":     func(p *probe, s step) { p.until(p.time(s, 1)) },
	"before": func(p *probe, s step) { p.untilJustBefore(p.time(s, 1)) },
	"mark":   func(p *probe, _ step) { p.mark = time.Since(p.start) },
	"refill": func(p *probe, _ step) { p.refill() },

	// fails n E: TryAcquire and Acquire return that error. try-done, acquire-done, peek-done: with a context that has ended.
	"fails": func(p *probe, s step) {
		lease, err := p.l.TryAcquire(p.ctx, s.n(1))
		p.isError(lease, err, s.word(2))
		w := p.acquire(s.n(1))
		p.returns(w)
		p.isError(w.lease, w.err, s.word(2))
	},
	"try-done": func(p *probe, s step) {
		lease, err := p.l.TryAcquire(endedContext(), s.n(1))
		p.isError(lease, err, s.word(2))
	},
	"acquire-done": func(p *probe, s step) {
		lease, err := p.l.Acquire(endedContext(), s.n(1))
		p.isError(lease, err, s.word(2))
	},
	"peek-done": func(p *probe, s step) {
		lease, err := optional[limiter.Peeker](p, "Peek").Peek(endedContext(), s.n(1))
		p.isError(lease, err, s.word(2))
	},

	// retry n t: TryAcquire is rejected until t, and its RetryAfter says so. tells n t: only says so.
	"retry": func(p *probe, s step) {
		p.tells(s.n(1), p.time(s, 2))
		p.untilJustBefore(p.time(s, 2))
		p.retriesAfter(p.rejected(s.n(1)), p.justBefore())
		p.until(p.time(s, 2))
		p.granted(s.n(1))
	},
	"tells": func(p *probe, s step) { p.tells(s.n(1), p.time(s, 2)) },
	// told a t: the rejection of a says to retry at t. untold a: it says nothing about that.
	"told": func(p *probe, s step) {
		w := p.waiter(s)
		p.retriesAfter(w.lease, p.time(s, 2)-w.ended.Sub(p.start))
	},
	"untold": func(p *probe, s step) { p.saysNoRetry(p.waiter(s).lease) },
	"never":  func(p *probe, s step) { p.saysNoRetry(p.rejected(s.n(1))) },

	// stats available queued successes failures: these are the statistics, unless the limiter has none.
	"stats": func(p *probe, s step) {
		if p.s.Lacks&Statistics == 0 {
			want := limiter.Statistics{
				AvailablePermits: s.all(1), QueuedPermits: int64(s.n(2)), SuccessfulLeases: int64(s.n(3)), FailedLeases: int64(s.n(4)),
			}
			if got := p.statistics(); got != want {
				p.fail(fmt.Sprintf("the statistics are %+v", want), fmt.Sprintf("%+v", got))
			}
		}
	},
	// idle t: the limiter is idle since t. idle: since some time. busy: it is not.
	"idle": func(p *probe, s step) {
		got, ok := p.idle()
		if want := time.Since(p.start) - p.time(s, 1); !ok || len(s.words) > 1 && got != want {
			p.fail("the limiter is idle", fmt.Sprintf("%v, %v", got, ok))
		}
	},
	"busy": func(p *probe, _ step) {
		if got, ok := p.idle(); ok {
			p.fail("the limiter is in use", fmt.Sprintf("idle for %v", got))
		}
	},

	// set field=value…: Reconfigure to the present limits, with these changed. set-fails E …: it returns that error.
	"set": func(p *probe, s step) {
		l := p.changed(s)
		if err := p.s.Reconfigure(p.l, l); err != nil {
			p.fail("the new limits are taken", err)
		}
		p.limits = l
		p.settle()
	},
	"set-fails": func(p *probe, s step) { p.isError(limiter.Lease{}, p.s.Reconfigure(p.l, p.changed(s)), s.word(1)) },

	// peek n: Peek is granted. peek-deny n: it is rejected. foresee n: it says what TryAcquire then does.
	"peek":      func(p *probe, s step) { p.peeks(s.n(1), true) },
	"peek-deny": func(p *probe, s step) { p.peeks(s.n(1), false) },
	"foresee":   func(p *probe, s step) { p.foresees(s.n(1)) },
	// peek-fails n E: Peek and TryAcquire return that error.
	"peek-fails": func(p *probe, s step) {
		lease, err := optional[limiter.Peeker](p, "Peek").Peek(p.ctx, s.n(1))
		p.isError(lease, err, s.word(2))
		lease, err = p.l.TryAcquire(p.ctx, s.n(1))
		p.isError(lease, err, s.word(2))
	},

	// charge n m: after a Charge of n, m remain, and the limiter says it is full if all do. full t m: m remain, all are back at
	// t and not before, and Charge says so. charge-fails E: any Charge returns that error. charge-done E: with an ended context.
	"charge": func(p *probe, s step) { p.charge(s.n(1), s.all(2)) },
	"full": func(p *probe, s step) {
		level, d := p.charge(0, int64(s.n(2))), p.time(s, 1)
		if diff := level.Full - (d - time.Since(p.start)); diff.Abs() > p.s.Resolution {
			p.fail("the limiter is full then", describeLevel(level, nil))
		}
		p.untilJustBefore(d)
		if level, err := p.charger().Charge(p.ctx, 0); err != nil || level.Remaining == int64(p.limits.Permits) || level.Full <= 0 {
			p.fail("it is just too early for all to be back", describeLevel(level, err))
		}
		p.until(d)
		p.charge(0, int64(p.limits.Permits))
	},
	// give-back n: Charge gives n back to waiters, so that some of them may remain.
	"give-back": func(p *probe, s step) {
		if level, err := p.charger().Charge(p.ctx, -s.n(1)); err != nil || level.Remaining < 1 {
			p.fail("after a Charge that gives back, some remain until the waiters have them", describeLevel(level, err))
		}
		p.settle()
	},
	"charge-fails": func(p *probe, s step) { p.chargeFails(p.ctx, s.word(1)) },
	"charge-done":  func(p *probe, s step) { p.chargeFails(endedContext(), s.word(1)) },
}

// do carries out a script.
func (p *probe) do(script string) {
	defer func(around string) { p.step = around }(p.step)
	for text := range splitSteps(script) {
		p.step = text
		if before, after, ok := strings.Cut(text, ": "); ok {
			if not, kind := strings.HasPrefix(before, "!"), strings.TrimPrefix(before, "!"); kind == "Zeros" {
				if p.s.Lacks&ZeroPermits != 0 {
					continue
				}
			} else if not == (kind == p.s.Kind.String()) {
				continue
			}
			text = after
		}
		s := step{text: text}
		text, s.inner, _ = strings.Cut(strings.TrimSuffix(text, "}"), "{")
		s.words = strings.Fields(text)
		if s.words[0] == "refund" {
			p.refundsByChain(s.n(1), func() { p.do(strings.ReplaceAll(s.inner, ",", ";")) })
			continue
		}
		verbs[s.words[0]](p, s)
	}
}

func splitSteps(script string) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		for text := range strings.SplitSeq(script, ";") {
			if text = strings.Join(strings.Fields(text), " "); text != "" && !yield(text) {
				return
			}
		}
	}
}

func (s step) word(i int) string {
	if i < 0 {
		i += len(s.words)
	}
	return s.words[i]
}

var largeNumbers = map[string]int{"max": math.MaxInt, "min": math.MinInt, "half": math.MaxInt/2 + 1}

// n returns an operand as a number; i counts from the end if it is negative.
func (s step) n(i int) int {
	if n, ok := largeNumbers[s.word(i)]; ok {
		return n
	}
	n, err := strconv.Atoi(s.word(i))
	if err != nil {
		panic(fmt.Sprintf("limitertest: step %q: %v", s.text, err))
	}
	return n
}

// all returns an operand as a number that can be "all", which is what an unlimited limiter has.
func (s step) all(i int) int64 {
	if s.word(i) == "all" {
		return math.MaxInt64
	}
	return int64(s.n(i))
}

// time returns an operand as a time since the start, and 0 if it is missing.
func (p *probe) time(s step, i int) time.Duration {
	if len(s.words) <= i {
		return 0
	}
	text, marked := strings.CutPrefix(s.words[i], "+")
	units, err := strconv.ParseFloat(text, 64)
	if err != nil {
		panic(fmt.Sprintf("limitertest: step %q: %v", s.text, err))
	}
	d := time.Duration(math.Round(units * float64(p.s.Unit)))
	if marked {
		d += p.mark
	}
	return d
}

func (p *probe) waiter(s step) *waiter {
	w := p.asked[s.word(1)]
	if w == nil {
		panic(fmt.Sprintf("limitertest: step %q: no Acquire has that name", s.text))
	}
	return w
}

var reasons = map[string]string{
	"NoPermit": limiter.ReasonNoPermit, "QueueLimit": limiter.ReasonQueueLimit,
	"LimitLowered": limiter.ReasonLimitLowered, "Closed": limiter.ReasonClosed,
}

// changed returns the present limits with what a step changes.
func (p *probe) changed(s step) Limits {
	l := p.limits
	for _, word := range s.words[1:] {
		field, value, ok := strings.Cut(word, "=")
		if !ok {
			continue // the error of set-fails
		}
		n := func() int { return step{text: s.text, words: []string{value}}.n(0) }
		switch field {
		case "Permits":
			l.Permits = n()
		case "Tokens":
			l.TokensPerPeriod = n()
		case "Segments":
			l.Segments = n()
		case "Queue":
			l.QueueLimit = n()
		case "Period":
			l.Period = p.time(step{text: s.text, words: []string{value}}, 0)
		case "Order":
			l.Order = map[string]limiter.QueueOrder{"newest": limiter.NewestFirst, "oldest": limiter.OldestFirst}[value]
		default:
			panic(fmt.Sprintf("limitertest: step %q: unknown field", s.text))
		}
	}
	return l
}

// expected are the errors by their names in scripts. An error that matches one of them matches no other.
var expected = map[string]error{
	"range": limiter.ErrPermitCount, "context": context.Canceled, "closed": limiter.ErrClosed, "invalid": limiter.ErrInvalidOptions,
}

// isError expects the error of that name, and no lease.
func (p *probe) isError(lease limiter.Lease, err error, name string) {
	for other, target := range expected {
		if errors.Is(err, target) != (other == name) {
			p.fail(fmt.Sprintf("the error is %q, and no other", expected[name]), describe(lease, err))
		}
	}
	if name == "context" && !errors.Is(err, errCause) {
		p.fail("the error has the context's cause", err)
	}
	if lease.Acquired() {
		p.fail("no lease comes with an error", describe(lease, nil))
	}
}

// errCause is the cause with which the cases end contexts.
var errCause = errors.New("the caller gave up")

// endedContext returns a context that has ended, with a cause.
func endedContext() context.Context {
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(errCause)
	return ctx
}

func (p *probe) close() {
	if err := optional[io.Closer](p, "Close").Close(); err != nil {
		p.fail("Close succeeds", err)
	}
	p.settle()
}

// retriesAfter expects a rejected lease with that RetryAfter.
func (p *probe) retriesAfter(lease limiter.Lease, want time.Duration) {
	got, ok := lease.RetryAfter()
	if !ok {
		p.fail(fmt.Sprintf("the rejection says to retry after %v", want), describe(lease, nil))
	}
	if (got - want).Abs() > p.s.Resolution {
		p.fail(fmt.Sprintf("RetryAfter is %v", want), got)
	}
}

// tells expects that n is rejected, and that RetryAfter says to come back d after the start.
func (p *probe) tells(n int, d time.Duration) {
	lease := p.rejected(n)
	p.retriesAfter(lease, d-time.Since(p.start))
}

func (p *probe) saysNoRetry(lease limiter.Lease) {
	if _, ok := lease.RetryAfter(); ok {
		p.fail("there is no RetryAfter", describe(lease, nil))
	}
}

// refundsByChain lets a chain take n permits and refund them, because its second limiter calls before and then rejects.
func (p *probe) refundsByChain(n int, before func()) {
	chain, err := limiter.Chain(p.l, rejecter{before})
	if err != nil {
		p.fail("a chain can be made", err)
	}
	lease, err := chain.TryAcquire(p.ctx, n)
	if err != nil || lease.Acquired() || lease.Reason() != "no" {
		p.fail("the chain is rejected by its second limiter", describe(lease, err))
	}
	p.settle()
}

// A rejecter is a limiter that calls before and then rejects.
type rejecter struct{ before func() }

func (r rejecter) TryAcquire(context.Context, int) (limiter.Lease, error) {
	r.before()
	return custom.Rejected(0, "no"), nil
}

func (r rejecter) Acquire(ctx context.Context, n int) (limiter.Lease, error) {
	return r.TryAcquire(ctx, n)
}

func (p *probe) idle() (time.Duration, bool) { return optional[custom.Idler](p, "Idle").IdleDuration() }

// peek calls Peek, which must give a decision. The lease is released and refunded, which must do nothing.
func (p *probe) peek(n int) limiter.Lease {
	lease, err := optional[limiter.Peeker](p, "Peek").Peek(p.ctx, n)
	if err != nil {
		p.fail(fmt.Sprintf("Peek(%d) gives a decision", n), describe(lease, err))
	}
	if lease.Acquired() && lease.Permits() != n {
		p.fail(fmt.Sprintf("a lease of Peek(%d) has so many permits", n), describe(lease, nil))
	}
	lease.Release()
	lease.Refund()
	p.settle()
	return lease
}

func (p *probe) peeks(n int, granted bool) {
	if lease := p.peek(n); lease.Acquired() != granted {
		p.fail(fmt.Sprintf("Peek(%d) is granted: %v", n, granted), describe(lease, nil))
	}
}

// foresees expects that Peek of n says what TryAcquire of n then does.
func (p *probe) foresees(n int) {
	peeked := p.peek(n)
	lease, ok := p.grants(n)
	if peeked.Acquired() != ok || peeked.Reason() != lease.Reason() {
		p.fail(fmt.Sprintf("Peek(%d) says what TryAcquire does, %s", n, describe(lease, nil)), describe(peeked, nil))
	}
	if want, known := lease.RetryAfter(); known {
		p.retriesAfter(peeked, want)
	} else {
		p.saysNoRetry(peeked)
	}
}

func (p *probe) charger() limiter.Charger { return optional[limiter.Charger](p, "Charge") }

// charge charges the limiter. It expects that so many permits remain and, if none are missing, that it is full now.
func (p *probe) charge(n int, remaining int64) limiter.Level {
	level, err := p.charger().Charge(p.ctx, n)
	if err != nil || level.Remaining != remaining || (level.Full == 0) != (remaining == int64(p.limits.Permits) || remaining == math.MaxInt64) {
		p.fail(fmt.Sprintf("after Charge(%d), %d remain", n, remaining), describeLevel(level, err))
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

func (p *probe) chargeFails(ctx context.Context, name string) {
	for _, n := range []int{1, 0, -1, math.MaxInt, math.MinInt} {
		level, err := p.charger().Charge(ctx, n)
		p.isError(limiter.Lease{}, err, name)
		if level != (limiter.Level{}) {
			p.fail("no level comes with an error", describeLevel(level, nil))
		}
	}
}
