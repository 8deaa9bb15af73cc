package limitertest

import (
	"context"
	"errors"
	"time"

	"github.com/weir-go/weir/limiter"
)

// errCause is the cause with which the cases end contexts.
var errCause = errors.New("the caller gave up")

// endedContext returns a context that has ended, with a cause.
func endedContext() context.Context {
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(errCause)
	return ctx
}

var contextCases = []testCase{
	{name: "Acquire with a context that is done takes nothing, even with permits free",
		rule: "Common 1", run: func(p *probe) {
			p.acquireFails(endedContext(), 1, "the context was done before", context.Canceled, errCause)
			past, cancel := context.WithTimeout(context.Background(), -time.Second)
			defer cancel()
			p.acquireFails(past, 0, "the deadline was past before, and n == 0 is no exception", context.DeadlineExceeded)
			p.granted(4, "all are still there")
		}},
	{name: "TryAcquire with a context that is done takes nothing, even with permits free",
		rule: "Common 10", run: func(p *probe) {
			p.tryAcquireFails(endedContext(), 1, "the context was done before", context.Canceled, errCause)
			p.granted(4, "all are still there")
		}},
	{name: "Acquire looks at the context before the range",
		rule: "Common 1", run: func(p *probe) {
			for _, n := range []int{-1, 5} {
				lease, err := p.l.Acquire(endedContext(), n)
				p.isError(lease, err, "a context that is done comes first", context.Canceled)
				if errors.Is(err, limiter.ErrPermitCount) {
					p.fail("the context's error comes alone", err)
				}
			}
		}},
	{name: "TryAcquire looks at the range before the context",
		rule: "Common 10", run: func(p *probe) {
			for _, n := range []int{-1, 5} {
				lease, err := p.l.TryAcquire(endedContext(), n)
				p.isError(lease, err, "the range comes first", limiter.ErrPermitCount)
				if errors.Is(err, context.Canceled) {
					p.fail("the range error comes alone", err)
				}
			}
		}},
	{name: "range and context come before closed",
		rule: "Common 1", needs: Close, run: func(p *probe) {
			p.close()
			p.bothFail(-1, limiter.ErrPermitCount, "the range error comes before ErrClosed")
			p.bothFail(5, limiter.ErrPermitCount, "the range error comes before ErrClosed")
			p.acquireFails(endedContext(), 1, "the context comes before ErrClosed", context.Canceled)
			p.tryAcquireFails(endedContext(), 1, "the context comes before ErrClosed", context.Canceled)
		}},
}
