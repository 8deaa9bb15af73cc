// Package hedge has the strategy that starts another attempt beside one that is slow, and takes the outcome of the one
// that ends first.
//
//	p, err := pipeline.New("prices", hedge.New(&hedge.Options{
//		Delay:  50 * time.Millisecond, // 95 of 100 calls are faster
//		Budget: extra,                 // at most a tenth of the calls is hedged
//	}))
//
// It is for calls that can run twice without harm, such as reads, and that are slow now and then for reasons that the
// next server does not share. It shortens the slowest few percent of the calls, and costs more load.
//
// # Which outcome counts
//
// The first outcome that is not handled wins, usually a success. When an outcome is handled, by default every error, the
// next attempt starts at once, as long as [Options.MaxHedges] allows another. If all attempts have ended and were
// handled, Execute returns the outcome of the first attempt: the one that would have come without hedging.
//
// # Refusals
//
// An attempt is refused if its error has a [pipeline.RetryAfter], such as that of a 429 response, or is a
// [pipeline.NotCalled] error, such as the rejection of a limiter or an open circuit. Another attempt at once would be
// refused, too. So after a refusal no attempt starts, neither at once nor after the delay. Attempts that run already go
// on, and their success still wins. If none succeeds, the refusal is returned, so that a retry outside waits as long as it
// asks for: alone if it was the first attempt's, and otherwise joined with the error of the first attempt.
// If the refusal is not retryable, as that of an open circuit, the retry returns both at once.
// [Options.AfterRefusal] is for attempts that call different servers.
//
// # What happens to the losers
//
// When an attempt wins, the contexts of all others are cancelled at once, with [ErrLost] as their cause, and Execute
// returns without waiting for them. (Polly waits, so that an attempt which ignores its context delays the winner.) So an
// attempt can go on in its goroutine after Execute has returned, until its callback returns. Until then it holds what
// strategies further inside have taken for it, such as a permit.
//
// A result that holds a resource, such as a response with a body, goes to [Options.Dispose] if its attempt did not win:
// before Execute returns if the attempt has ended by then, else when it ends, in a goroutine of this package.
//
// The winner's context is cancelled, too, as soon as its callback has returned. What needs the context, such as reading
// the body of a response, belongs in the callback.
//
// # When the caller's context ends
//
// The contexts of the attempts end, too, and no more attempts start. Execute waits for running attempts, as other
// strategies do, and returns a success even if it comes late. The first outcome that is not handled still decides. By
// default that includes a context error once the caller's context is done. So Execute returns when one attempt
// returns that error, and a later success of another attempt goes to Dispose. If the end of the context kept an
// attempt from starting and no outcome wins, the first attempt's outcome is joined with the context's error.
//
// # Panics
//
// A panic of an attempt, or a [runtime.Goexit], counts as an outcome that is not handled: it goes on in the caller's
// goroutine, with the same value. The panic of a loser goes to Dispose as a [*pipeline.PanicError]. If Dispose is nil, it is
// logged with [slog.Default], and so is a panic of Dispose.
//
// # Order
//
// Strategies that apply once to the execution belong outside a hedge: a retry, a limit on the requests of users, a
// timeout for the whole. Strategies that apply to each attempt belong inside: a circuit breaker, a limit on the calls to
// a server, a timeout for each attempt. A circuit breaker inside does not count losers, since their contexts are
// cancelled; a Handle of the breaker should not count [context.Canceled] as a failure.
//
// # Cost
//
// Every attempt runs in its own goroutine, including the first: if it ran in the caller's, Execute could not return
// before it has ended. With the context and the timer, that is eight allocations for an execution without a hedge.
package hedge
