// Package retry has the strategy that runs what comes after it again when it
// failed.
//
//	p, err := pipeline.New("orders", retry.New(&retry.Options{
//		MaxRetries: 5,
//		Backoff:    retry.Exponential,
//		Delay:      100 * time.Millisecond,
//		MaxDelay:   5 * time.Second,
//		Jitter:     true,
//	}))
//
// # What is retried
//
// By default every error, as long as the execution's own context is not done, except
// [context.Canceled]. This includes timeouts that match [context.DeadlineExceeded]:
// that of http.Client.Timeout, of a connection, and of a deadline that the callback
// sets for itself. It also includes the error of a timeout strategy inside the retry.
//
// An error whose method Retryable() bool returns false is not retried. The first
// error in the tree of [errors.As] that has the method decides, also for errors that
// are joined with it. Results are retried where [Options.Handle] says so.
//
// # When it gives up
//
// The last outcome is returned as it is when the retries are used up. When the
// context ends between attempts, or a wait would outlast the context's deadline
// or [Options.MaxDuration], the last failure is returned at once, joined with
// the reason: [errors.Is] finds both. A success is kept, however late it comes.
//
// The last failure is returned with the reason, too, when [Options.Budget] has no
// retry left. Set one where many callers could retry at the same time: three retries
// each are four times the load on a server that fails because it has too much of it.
// A retry that is not made takes nothing out of the budget: if the context ends during
// the wait, or a function of the options panics, what was taken is given back.
//
// # How long it waits
//
// Between two attempts it waits for the backoff, or longer if the failure asks
// for it: a rate limiter's rejection does, and so does any error that
// [pipeline.RetryAfter] understands. If it asks for more than [Options.MaxRetryAfter],
// a minute by default, it is returned at once: a limiter whose window is an hour does
// not park the caller for an hour.
//
// With [Options.Jitter] an exponential backoff is "full jitter": uniform between
// 0 and the backoff. In the simulations of "Exponential Backoff And Jitter" (AWS
// Architecture Blog, 2015), clients that compete for the same thing need the
// fewest calls with it, and unlike decorrelated jitter it depends on nothing but
// the attempt's number, so that there is no state to share. Constant and linear
// backoffs vary by a quarter to either side, as Polly's do. Jitter never takes
// anything from a wait that the failure asks for; it adds up to a quarter of the
// backoff to it, so that clients given the same wait do not return together.
package retry
