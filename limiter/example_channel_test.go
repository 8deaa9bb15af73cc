package limiter_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/limiter"
)

// Three mails an hour may be posted. With a QueueLimit the fourth Send would wait
// instead of being rejected.
func ExampleChannel() {
	ctx := context.Background()
	hourly := weir.Must(limiter.NewTokenBucket(limiter.TokenBucketOptions{
		TokenLimit: 3, TokensPerPeriod: 3, ReplenishmentPeriod: time.Hour,
	}))
	mails, err := limiter.NewChannel[string](hourly, 10, nil)
	if err != nil {
		panic(err)
	}

	for _, to := range []string{"ann", "bob", "cid", "dan"} {
		err := mails.Send(ctx, to)
		if rejected, ok := errors.AsType[*limiter.SendRejectedError](err); ok {
			after, _ := rejected.Lease.RetryAfter()
			fmt.Println("come back in", after.Round(time.Minute), to)
		}
	}
	mails.Close()
	for to := range mails.All(ctx) {
		fmt.Println("dear", to)
	}

	// Output:
	// come back in 1h0m0s dan
	// dear ann
	// dear bob
	// dear cid
}

// Two queues of different things share what there is room for: an item's permit
// goes back when it is received.
func ExampleChannel_shared() {
	ctx := context.Background()
	room := weir.Must(limiter.NewConcurrency(limiter.ConcurrencyOptions{PermitLimit: 2}))
	photos, _ := limiter.NewChannel[string](room, 2, nil)
	films, _ := limiter.NewChannel[string](room, 2, nil)

	fmt.Println(photos.Send(ctx, "beach"))
	fmt.Println(films.Send(ctx, "sunset"))
	fmt.Println(films.Send(ctx, "harbour"))

	photo, _ := photos.Receive(ctx)
	fmt.Println("got", photo)
	fmt.Println(films.Send(ctx, "harbour"))

	// Output:
	// <nil>
	// <nil>
	// limiter: rejected: no permit free
	// got beach
	// <nil>
}

// Why an item cannot be sent now.
func ExampleChannel_TrySend() {
	ctx := context.Background()
	hourly := weir.Must(limiter.NewFixedWindow(limiter.FixedWindowOptions{PermitLimit: 2, Window: time.Hour}))
	jobs, _ := limiter.NewChannel[string](hourly, 1, nil)

	try := func(job string) {
		err := jobs.TrySend(ctx, job)
		rejected, isRejected := errors.AsType[*limiter.SendRejectedError](err)
		switch {
		case err == nil:
			fmt.Println(job, "is on its way")
		case isRejected:
			after, _ := rejected.Lease.RetryAfter()
			fmt.Println(job, "has to wait", after.Round(time.Minute))
		case errors.Is(err, limiter.ErrChannelFull):
			fmt.Println(job, "finds no room") // and costs nothing
		case errors.Is(err, limiter.ErrClosed):
			fmt.Println(job, "is too late")
		default:
			fmt.Println(job, "failed:", err) // the context ended, or the limiter's store is down
		}
	}
	try("a")
	try("b")
	jobs.Receive(ctx)
	try("c")
	jobs.Receive(ctx)
	try("d")
	jobs.Close()
	try("e")

	// Output:
	// a is on its way
	// b finds no room
	// c is on its way
	// d has to wait 1h0m0s
	// e is too late
}
