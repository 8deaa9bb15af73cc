// Package retry has the strategy that repeats what comes after it in the pipeline if that has failed.
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
// By default every error is retried as long as the execution's own context is not done, except [context.Canceled].
// This includes timeouts that match [context.DeadlineExceeded]: that of http.Client.Timeout, of a connection, and of
// a deadline that the callback sets for itself. It also includes the error of a timeout strategy inside the retry.
//
// An error whose method Retryable() bool returns false is not retried, such as the rejection of an open circuit. Of joined
// errors one is enough, even if another could be retried; see [pipeline.Retryable]. [Options.Handle] replaces this rule, and
// can have results retried, too.
//
// # When it gives up
//
// If no retry is left, the last outcome is returned as it is. If the context ends between two attempts, or the wait
// would outlast the context's deadline or [Options.MaxDuration], the last failure is returned at once, joined with the
// reason: [errors.Is] finds both. A success is returned even if it comes late.
//
// The last failure is also returned with the reason if [Options.Budget] has no retry left. Set a budget if many callers
// can retry at the same time: three retries each are four times the load on a server that fails because it has too
// much load. A retry that is not made costs the budget nothing: if the context ends during the wait, or a function of
// the options panics, what was taken is given back.
//
// # How long it waits
//
// Between two attempts the strategy waits for the backoff. If the failure asks for a longer wait, it waits that long.
// A failure asks for a wait if [pipeline.RetryAfter] has an answer for it, as for the rejection of a rate limiter. If
// the failure asks for more than [Options.MaxRetryAfter], a minute by default, it is returned at once: a limiter
// whose window is an hour does not make the caller wait for an hour.
//
// With [Options.Jitter] the wait of an exponential backoff is uniform between 0 and the backoff ("full jitter"). In the
// simulations of "Exponential Backoff And Jitter" (AWS Architecture Blog, 2015), clients that compete for the same
// thing need the fewest calls with it. Unlike decorrelated jitter it depends only on the attempt's number, so there is
// no state to share. Constant and linear backoffs vary by a quarter to either side, as Polly's do. Jitter never
// shortens a wait that the failure asks for; it adds up to a quarter of the backoff, so that clients given the same
// wait do not return together.
package retry
