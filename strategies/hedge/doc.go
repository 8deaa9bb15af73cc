// Package hedge has the strategy that does not wait for a slow attempt alone: after
// a while it makes another one beside it, and takes whichever is done first.
//
//	p, err := pipeline.New("prices", hedge.New(&hedge.Options{
//		Delay:  50 * time.Millisecond, // what 95 of 100 calls take
//		Budget: extra,                 // and no more than a tenth of the calls
//	}))
//
// It is for calls that may run twice without harm, such as reads, and that are slow
// now and then for reasons that the next server does not share. It buys the last
// percents of latency with load.
//
// # Which outcome counts
//
// The first one that is not handled wins, a success as a rule. One that is handled,
// by default every error, makes the next attempt start at once, as long as
// [Options.MaxHedges] allows for another. When all have ended and were
// handled, the outcome of the first attempt is returned: it is what would have
// come without hedging, whatever the others ran into.
//
// # What becomes of the losers
//
// When one wins, the contexts of all others end at once, with [ErrLost] as their
// cause, and Execute returns without waiting for them. Polly waits, so that one
// attempt which pays no attention to its context delays the winner. The price is that
// an attempt may go on in its goroutine after Execute has returned: until its
// callback does. What it took further inside, such as a permit, it holds as long.
//
// A result that holds something, such as a response with a body, goes to
// [Options.Dispose] if its attempt did not win: before Execute returns where the
// attempt had ended by then, else when it does, in its own goroutine.
//
// The winner's context ends, too, as soon as its callback has returned. What needs
// the context belongs into the callback: reading the body of a response, say.
//
// # When the caller's context ends
//
// So do those of the attempts, and no more are started. Those that run are waited
// for, as everywhere in weir: a success is kept, however late it comes, and a
// callback that listens is not late. But here, too, the first outcome that is not
// handled decides, and by default a context's error is not handled once the
// caller's context is done. So Execute returns when one attempt returns that error, and
// a later success of another attempt goes to Dispose. If the end of the context kept
// an attempt from starting and no outcome wins, the first attempt's outcome is joined with
// the context's error.
//
// # Panics
//
// A panic of an attempt, or a [runtime.Goexit], counts as an outcome that is not
// handled: it goes on in the goroutine of the caller, with the same value. That of
// a loser goes to Dispose as a [*PanicError], or, if the execution has returned and
// Dispose is nil, is logged with [slog.Default]. So is a panic of Dispose after the
// execution.
//
// # Order
//
// Outside of a hedge stands what counts once: a retry, a limit of requests by users,
// a timeout for the whole. Inside of it stands what counts for each attempt: a circuit
// breaker, a limit of what a server gets, a timeout for each. A circuit breaker inside
// does not count losers, since their contexts are cancelled; a Handle of the
// breaker should not count [context.Canceled] as a failure.
//
// # Cost
//
// Every attempt runs in a goroutine, the first one, too: if it ran in the caller's,
// a hedge that wins could not return before it has ended. With the context that can
// be ended and the timer, that is eight allocations for an execution without a
// hedge. With -1 for Delay there is never more than one attempt at a time; all run
// in the caller's goroutine, and the first allocates nothing.
package hedge
