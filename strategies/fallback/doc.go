// Package fallback has the strategy that replaces a failure: by a fixed value, by one from another place, or by another
// error.
//
//	p, err := pipeline.New("prices",
//		fallback.New(fallback.Value(&Price{Estimated: true}), nil), // outermost
//		retry.New(nil),
//		timeout.New(time.Second, nil),
//	)
//
// # What is replaced
//
// By default every error except [context.Canceled], and [context.DeadlineExceeded] once the execution's own context is
// done. Timeouts that match context.DeadlineExceeded, such as http.Client.Timeout, are replaced, and so are rejections: a
// limiter's, an open circuit's and a timeout strategy's. [Options.Handle] selects other outcomes, results included.
//
// A panic is not replaced.
//
// # What comes out
//
// The value and the error that the action returns. The value must be of the type that [pipeline.ExecuteValue] is called
// for, else that returns [pipeline.ErrResultType]. Mind constants: Value(0) is an int; for a float64 write
// Value[float64](0). [pipeline.Pipeline.Execute] drops the value.
//
// A pointer, map or slice that is passed to [Value] is the same for all executions: callers must not write to it.
//
// # Order
//
// Usually outermost. A retry or a circuit breaker outside a fallback sees a success: nothing is retried and no circuit
// opens. For an action that can fail, use two fallbacks, one outside the other: the outer one replaces the error of the
// inner one's action.
//
// The strategies inside a fallback do not apply to the action, and what they have lent for the outcome is given back before it
// runs. It gets the caller's context and the time that is left, so
// a timeout inside should leave some. An action that calls another server should run through a pipeline of its own.
//
// In telemetry, too, an execution whose action succeeded is a success. The failure is in [EventFallback].
//
// # In a configuration file
//
// A file refers to an action by the name under which the program registered it. It cannot hold a value, because a file
// does not know Go's types, nor an error, because code could not compare with it.
package fallback
