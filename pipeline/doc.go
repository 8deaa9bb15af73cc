// Package pipeline runs a program's calls through named pipelines of ordered strategies, such as rate limits,
// timeouts and retries. A program can add its own [Strategy].
//
//	orders, err := pipeline.New("orders",
//		retry.New(nil),                                // outermost
//		ratelimit.New(bucket, nil),                    // a permit for each attempt
//		timeout.New(2*time.Second, nil),               // a limit for each attempt, from the permit on
//	)
//	…
//	order, err := pipeline.ExecuteValue(ctx, orders, func(ctx context.Context) (*Order, error) {
//		return client.Order(ctx, id)
//	})
//
// Make a Pipeline once. Many goroutines can use it, for as long as the program runs. Executing it allocates nothing by
// itself.
//
// Most programs need [New], [Pipeline.Execute] and [ExecuteValue]. [Config] is for a pipeline with a [Listener].
// [Strategy] and [Next] are for authors of strategies, and [Reloadable] is what a registry is made of.
//
// # Errors
//
// The error of the callback is returned unchanged unless a strategy replaces it. The error of every strategy that
// rejects an execution matches [ErrRejected]. If such an error knows when the next attempt can succeed, [RetryAfter]
// returns that.
//
// # Contexts
//
// An execution whose context is done runs nothing: the context is checked when the execution begins, and again before
// each run of the callback. The error is [ContextError]. Package timeout says when its contexts are done.
//
// An error that matches [context.DeadlineExceeded] is a failure like any other as long as the execution's own context
// is not done: a server that does not answer within http.Client.Timeout, or within a deadline that the callback sets,
// has failed. An error that matches [context.Canceled] says that the work was given up, and is not a failure.
//
// # Panics
//
// A panic of the callback, and a [runtime.Goexit], reaches the caller unchanged. Strategies release what they hold on
// the way.
package pipeline
