package limitertest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"time"

	"github.com/weir-go/weir/limiter"
)

var rangeCases = []testCase{
	{
		name: "a negative number of permits is an error, and takes nothing", rule: "Common 1",
		run: func(p *probe) {
			p.with(p.usual())
			p.bothOutOfRange(-1, "there is no such number of permits")
			p.granted(4, "a request out of range takes nothing")
		},
	},
	{
		name: "more permits than the limiter could ever grant are an error, not a rejection", rule: "Common 1",
		run: func(p *probe) {
			p.with(p.usual())
			p.bothOutOfRange(5, "the limit is 4")
			p.bothOutOfRange(math.MaxInt/2+1, "the limit is 4")
			p.granted(4, "a request out of range takes nothing")
			p.bothOutOfRange(5, "it stays an error when nothing is left")
		},
	},
	{
		name: "the whole limit in one piece is in range", rule: "Common 1",
		run: func(p *probe) {
			p.with(p.usual())
			p.granted(4, "all are there")
			p.rejected(1, "all were taken")
			p.refill()
			p.served(p.acquire(4), "all came back")
		},
	},
	{
		name: "a queue that has no end does not stretch the range", rule: "Common 1", needs: Queue,
		run: func(p *probe) {
			l := p.usual()
			l.QueueLimit = math.MaxInt/8 + 1
			p.with(l)
			p.bothOutOfRange(5, "more than the limit can never be granted, however long it waits")
		},
	},
}

// bothOutOfRange expects the range error of both calls.
func (p *probe) bothOutOfRange(n int, why string) {
	why = fmt.Sprintf("n is %d, and %s", n, why)
	lease, err := p.l.TryAcquire(p.ctx, n)
	p.isError(lease, err, why, limiter.ErrPermitCount)
	w := p.acquire(n)
	p.ends(w, why)
	p.isError(w.lease, w.err, why, limiter.ErrPermitCount)
}

var errCause = errors.New("the caller went home")

// gone returns a context that has ended, with a cause.
func gone() context.Context {
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(errCause)
	return ctx
}

var contextCases = []testCase{
	{
		name: "Acquire with a context that is done takes nothing, even with permits free", rule: "Common 1",
		run: func(p *probe) {
			p.with(p.usual())
			lease, err := p.l.Acquire(gone(), 1)
			p.isError(lease, err, "the context was done before", context.Canceled, errCause)
			past, cancel := context.WithTimeout(context.Background(), -time.Second)
			defer cancel()
			lease, err = p.l.Acquire(past, 0)
			p.isError(lease, err, "the deadline was past before, and n == 0 is no exception", context.DeadlineExceeded)
			p.granted(4, "all are still there")
		},
	},
	{
		name: "TryAcquire with a context that is done takes nothing, even with permits free", rule: "Common 10",
		run: func(p *probe) {
			p.with(p.usual())
			lease, err := p.l.TryAcquire(gone(), 1)
			p.isError(lease, err, "the context was done before", context.Canceled, errCause)
			p.granted(4, "all are still there")
		},
	},
	{
		name: "Acquire looks at the context before the range", rule: "Common 1",
		run: func(p *probe) {
			p.with(p.usual())
			for _, n := range []int{-1, 5} {
				lease, err := p.l.Acquire(gone(), n)
				p.isError(lease, err, "a context that is done comes first", context.Canceled)
				if errors.Is(err, limiter.ErrPermitCount) {
					p.fail("the context's error comes alone", err)
				}
			}
		},
	},
	{
		name: "TryAcquire looks at the range before the context", rule: "Common 10",
		run: func(p *probe) {
			p.with(p.usual())
			for _, n := range []int{-1, 5} {
				lease, err := p.l.TryAcquire(gone(), n)
				p.isError(lease, err, "the range comes first", limiter.ErrPermitCount)
				if errors.Is(err, context.Canceled) {
					p.fail("the range error comes alone", err)
				}
			}
		},
	},
	{
		name: "range and context come before closed", rule: "Common 1", needs: Close,
		run: func(p *probe) {
			p.with(p.usual())
			p.close()
			p.bothOutOfRange(-1, "the range error comes before ErrClosed")
			p.bothOutOfRange(5, "the range error comes before ErrClosed")
			lease, err := p.l.Acquire(gone(), 1)
			p.isError(lease, err, "the context comes before ErrClosed", context.Canceled)
			lease, err = p.l.TryAcquire(gone(), 1)
			p.isError(lease, err, "the context comes before ErrClosed", context.Canceled)
		},
	},
}

// close closes the limiter.
func (p *probe) close() {
	c, ok := p.l.(io.Closer)
	if !ok {
		p.fail("the limiter is an io.Closer, or Subject.Lacks says Close", fmt.Sprintf("%T", p.l))
	}
	if err := c.Close(); err != nil {
		p.fail("Close succeeds", err)
	}
	p.settle()
}
