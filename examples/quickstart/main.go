// Quickstart serves a burst of ten concurrent calls through a pipeline of retry
// around a rate limiter around a timeout, and prints what happens to each.
//
//	go run ./examples/quickstart
//
// The limiter is a token bucket: three calls may go at once, four a second in the
// long run, and two may wait. So of the ten calls three are admitted, two are queued,
// and five are rejected with the time after which to come back. Retry waits for that
// long, and in the end all calls have come through at the limiter's rate.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/strategies/ratelimit"
	"github.com/weir-go/weir/strategies/retry"
	"github.com/weir-go/weir/strategies/timeout"
)

const calls = 10

func main() {
	if err := run(context.Background(), os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, w io.Writer) error {
	bucket, err := limiter.NewTokenBucket(limiter.TokenBucketOptions{
		TokenLimit:          3,
		TokensPerPeriod:     1,
		ReplenishmentPeriod: 250 * time.Millisecond,
		QueueLimit:          2,
	})
	if err != nil {
		return err
	}
	defer bucket.Close()

	out := &journal{w: w, began: time.Now()}
	service, err := pipeline.New("service",
		retry.New(&retry.Options{MaxRetries: retry.Forever, Delay: -1}), // waits for as long as the limiter asks for
		ratelimit.New(watched{bucket, out}, nil),
		timeout.New(time.Second, nil),
	)
	if err != nil {
		return err
	}
	defer service.Close()

	out.note("%d calls at once: 3 tokens are there, one more comes every 250ms, 2 calls may wait", calls)
	if err := burst(ctx, service, out); err != nil {
		return err
	}
	took := time.Since(out.began)
	s := bucket.Statistics()
	out.note("")
	out.note("all %d calls came through in %.2fs: 3 at once, and 7 more at 4 a second take 1.75s", calls, took.Seconds())
	out.note("the limiter granted %d leases and rejected %d; %d tokens are left, %d calls wait",
		s.SuccessfulLeases, s.FailedLeases, s.AvailablePermits, s.QueuedPermits)
	return nil
}

// burst makes all calls at once and returns when they are done.
func burst(ctx context.Context, service *pipeline.Pipeline, out *journal) error {
	errs := make([]error, calls)
	var wg sync.WaitGroup
	for i := range calls {
		wg.Go(func() {
			name := fmt.Sprintf("call %d", i+1)
			ctx := pipeline.WithOperation(ctx, name)
			errs[i] = service.Execute(ctx, func(ctx context.Context) error {
				select {
				case <-time.After(20 * time.Millisecond): // the work
					out.line(name, "done")
					return nil
				case <-ctx.Done():
					return ctx.Err()
				}
			})
		})
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// watched is a limiter that prints the decisions of another one. Any type with the
// methods TryAcquire and Acquire is a Limiter.
type watched struct {
	limiter.Limiter
	out *journal
}

func (l watched) Acquire(ctx context.Context, n int) (limiter.Lease, error) {
	call := pipeline.Operation(ctx)
	asked := time.Now()
	lease, err := l.Limiter.Acquire(ctx, n)
	waited := time.Since(asked).Round(time.Millisecond)
	retryAfter, _ := lease.RetryAfter()
	switch {
	case err != nil:
		l.out.line(call, "gave up: %v", err)
	case !lease.Acquired():
		l.out.line(call, "rejected: %s, retry after %s", lease.Reason(), ms(retryAfter))
	case waited > 0:
		l.out.line(call, "admitted, after %s in the queue", ms(waited))
	default:
		l.out.line(call, "admitted")
	}
	return lease, err
}

// journal prints lines with the time since it began.
type journal struct {
	mu    sync.Mutex
	w     io.Writer
	began time.Time
}

func (j *journal) line(call, format string, args ...any) {
	j.mu.Lock()
	defer j.mu.Unlock()
	fmt.Fprintf(j.w, "%8s  %-8s %s\n", ms(time.Since(j.began)), call, fmt.Sprintf(format, args...))
}

func (j *journal) note(format string, args ...any) {
	j.mu.Lock()
	defer j.mu.Unlock()
	fmt.Fprintf(j.w, format+"\n", args...)
}

func ms(d time.Duration) string { return fmt.Sprintf("%dms", d.Round(time.Millisecond).Milliseconds()) }
