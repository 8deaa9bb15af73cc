// Package pipeline runs a program's calls through named pipelines of ordered
// strategies: rate limits, timeouts, retries and whatever else is a [Strategy].
//
//	orders, err := pipeline.New("orders",
//		retry.New(nil),                                // outermost
//		timeout.New(2*time.Second, nil),               // a limit for every attempt
//		ratelimit.New(bucket, nil),                    // a permit for every attempt
//	)
//	…
//	order, err := pipeline.ExecuteValue(ctx, orders, func(ctx context.Context) (*Order, error) {
//		return client.Order(ctx, id)
//	})
//
// A Pipeline is made once and used by many goroutines for as long as the program
// lives. Running one allocates nothing by itself.
//
// # Errors
//
// What the callback returns comes back as it is, unless a strategy has a reason
// to replace it. Every strategy that turns an execution away does so with an
// error that [errors.Is] [ErrRejected]. Where such an error knows when another
// try is worth it, [RetryAfter] says so.
//
// # Contexts
//
// An execution whose context is done runs nothing: the context is looked at when
// the execution begins, and again before each run of the callback. See
// [ContextError] for what comes back.
//
// An error that is [context.DeadlineExceeded] is a failure like any other as long as
// the execution's own context is not done: a server that does not answer within
// http.Client.Timeout, or within a deadline that the callback sets, has failed. An
// error that is [context.Canceled] says that the work was given up, and is none.
//
// # Panics
//
// A panic of the callback, and a [runtime.Goexit], goes to the caller unchanged.
// Strategies give back what they hold on the way.
package pipeline
