package limiter_test

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/limiter/custom"
)

// WithReason returns l with a reason phrase on its rejections, in place of their
// own: which of several limits it was, in words that a caller may be shown.
//
// The rest is passed on to l: statistics, idle duration and Close. What l does not have is answered as a limiter would to which it does
// not matter.
func WithReason(l limiter.Limiter, reason string) limiter.Limiter { return reasoned{l, reason} }

type reasoned struct {
	limiter.Limiter
	reason string
}

// What callers of a limiter may ask for with a type assertion.
var (
	_ limiter.StatisticsProvider = reasoned{}
	_ io.Closer                  = reasoned{}
	_ custom.Idler               = reasoned{}
)

func (r reasoned) TryAcquire(ctx context.Context, n int) (limiter.Lease, error) {
	return r.explain(r.Limiter.TryAcquire(ctx, n))
}

func (r reasoned) Acquire(ctx context.Context, n int) (limiter.Lease, error) {
	return r.explain(r.Limiter.Acquire(ctx, n))
}

// explain leaves errors and granted leases alone. With returns another lease
// with everything that the old one says: RetryAfter stays.
func (r reasoned) explain(lease limiter.Lease, err error) (limiter.Lease, error) {
	if err != nil || lease.Acquired() {
		return lease, err
	}
	return limiter.ReasonKey.With(lease, r.reason), nil
}

func (r reasoned) Statistics() limiter.Statistics {
	if p, ok := r.Limiter.(limiter.StatisticsProvider); ok {
		return p.Statistics()
	}
	return limiter.Statistics{}
}

// IdleDuration says "in use" for a limiter that does not know, as a chain does.
func (r reasoned) IdleDuration() (idle time.Duration, ok bool) {
	if i, knows := r.Limiter.(custom.Idler); knows {
		return i.IdleDuration()
	}
	return 0, false
}

func (r reasoned) Close() error {
	if c, ok := r.Limiter.(io.Closer); ok {
		return c.Close()
	}
	return nil
}

// A limiter around another that says which of several limits was reached.
func Example_reason() {
	window := func(limit int, reason string) limiter.Limiter {
		return WithReason(weir.Must(limiter.NewFixedWindow(limiter.FixedWindowOptions{
			PermitLimit: limit, Window: time.Hour,
		})), reason)
	}
	both := weir.Must(limiter.Chain(
		window(2, "no more than 2 sign-ups an hour from one network"),
		window(100, "no more than 100 sign-ups an hour"),
	))
	for range 3 {
		lease, err := both.TryAcquire(context.Background(), 1)
		if err != nil {
			panic(err)
		}
		if lease.Acquired() {
			fmt.Println("welcome")
			continue
		}
		after, _ := lease.RetryAfter()
		fmt.Printf("%s; come back in %v\n", lease.Reason(), after.Round(time.Minute))
	}

	// Output:
	// welcome
	// welcome
	// no more than 2 sign-ups an hour from one network; come back in 1h0m0s
}
