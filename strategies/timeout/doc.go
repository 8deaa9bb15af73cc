// Package timeout has the strategy that gives an execution a limited time.
//
//	p, err := pipeline.New("orders", timeout.New(2*time.Second, nil))
//	…
//	err = p.Execute(ctx, call)
//	if failure, ok := errors.AsType[*timeout.Error](err); ok {
//		log.Printf("no answer within %v", failure.After)
//	}
//
// A timeout is cooperative: the callback gets a context that ends in time, and
// the strategy waits for it to return. A callback that pays no attention to its
// context takes as long as it takes, and if it succeeds after all, that is a
// success. So there is never a goroutine left behind.
//
// A failure after the deadline is a timeout if it is of the kind that an ended context
// causes: the context's error or cause, an error whose method Timeout() bool returns
// true, or a gRPC status Canceled or DeadlineExceeded. Any other error is returned as
// it is.
//
// # The context
//
// The callback's context behaves like one of [context.WithTimeoutCause]: it has
// a Deadline, its Err is [context.DeadlineExceeded] after that, its
// [context.Cause] is then an [*Error] that names the strategy, and so it is in
// contexts made from it. Unlike one of those it starts a timer only when
// its Done method is called, directly or by making a context from it;
// until then Err looks at the clock. Many calls never ask, and the timeout costs
// them one allocation.
//
// Until one of its methods is called, the context does not notice that its deadline has
// passed: it is Canceled if its parent was cancelled, or the strategy returned, before
// the first call.
//
// When the strategy returns, the context is cancelled.
package timeout
