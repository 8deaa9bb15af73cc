// Package fallback has the strategy that puts something else in the place of what
// failed: a value that will do, one that is got elsewhere, or another error.
//
//	p, err := pipeline.New("prices",
//		fallback.New(fallback.Value(&Price{Estimated: true}), nil), // outermost
//		retry.New(nil),
//		timeout.New(time.Second, nil),
//	)
//
// # What is handled
//
// By default every error except [context.Canceled], and [context.DeadlineExceeded] once
// the execution's own context is done. Those are returned as they are.
// Timeouts that match context.DeadlineExceeded, such as http.Client.Timeout, are
// replaced, and so are rejections: a limiter's, an open circuit's and a timeout
// strategy's. [Options.Handle] selects other outcomes, results included.
//
// A panic is not handled.
//
// # What comes out
//
// What the action returns, value and error, as it is. The value must be of the
// type that [pipeline.ExecuteValue] is called for; if it is not, that returns
// [pipeline.ErrResultType]. Mind constants: Value(0) is an int, and for a float64
// it is to be Value[float64](0). [pipeline.Pipeline.Execute] has no use for a
// value and drops it.
//
// A pointer, map or slice that is given to [Value] is the same for all executions:
// callers must not write to it.
//
// # Where it stands
//
// Outermost, as a rule. A retry or a circuit breaker outside of it takes what it
// returns for the success that it looks like: nothing is retried and no circuit
// opens. Two fallbacks, one outside the other, are for an action that can fail: the
// outer one handles the error of the inner one's action.
//
// Strategies inside of it do not guard the action: their time limits and limiters
// are over when it runs. It gets the caller's context and what is left of its time,
// so a timeout inside should leave some. An action that calls somewhere else is
// best run through a pipeline of its own.
//
// An execution that fell back and succeeded is a success in telemetry, too. What
// tells of the failure is [EventFallback].
//
// # In a configuration file
//
// A file names an action that the program has registered. It cannot hold the value
// itself, because a file does not know Go's types, nor an error, because code could
// not compare with it.
package fallback
