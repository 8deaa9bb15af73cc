// Package timeout has the strategy that limits the time of an execution.
//
//	p, err := pipeline.New("orders", timeout.New(2*time.Second, nil))
//	…
//	err = p.Execute(ctx, call)
//	if failure, ok := errors.AsType[*timeout.Error](err); ok {
//		log.Printf("no answer within %v", failure.After)
//	}
//
// A timeout is cooperative: the callback gets a context that ends in time, and the strategy waits until the callback
// returns. A callback that ignores its context is not interrupted, and if it succeeds late, the execution is a success.
// So the strategy never leaves a goroutine behind.
//
// A failure after the deadline is a timeout, whatever its error is: drivers and clients have many errors for a context that has
// ended. The error of the callback is the Err of the [*Error].
//
// # The context
//
// The callback's context behaves like one of [context.WithTimeoutCause]: it has a Deadline, its Err is
// [context.DeadlineExceeded] after that, and its [context.Cause] is then an [*Error] that names the strategy, also in
// contexts made from it. Unlike a context of package context, it starts a timer only when its Done method is called,
// directly or by making a context from it; until then Err reads the clock. Many calls never use Done, and the timeout
// costs them one allocation.
//
// Without a timer, the context finds out that its deadline has passed only when one of its methods is called. If its
// parent is cancelled or the strategy returns before that, its Err is [context.Canceled], even after the deadline. The
// pipeline does not read the clock for it on the way to the callback. So a strategy in between that takes long without looking
// at its context does not keep the callback from running.
//
// When the strategy returns, the context is cancelled.
package timeout
