// Package budget keeps retries and hedges from multiplying an overload: it limits
// the attempts that come on top to a share of the executions.
//
//	extra := weir.Must(budget.New(&budget.Options{Ratio: 0.1}))
//	orders, err := pipeline.New("orders", retry.New(&retry.Options{Budget: extra}))
//	prices, err := pipeline.New("prices", hedge.New(&hedge.Options{Budget: extra}))
//
// Three retries sound harmless. When a server fails every call they are four times
// the load, just when it can bear the least, and with two layers that retry it is
// sixteen times. With a budget of a tenth it is at most 1.1 times, whatever the
// strategies would like, and a call that fails now and then is retried as ever.
//
// # What to share
//
// Make one budget for each thing that can be overloaded, such as a server or a
// database, and give it to every strategy that makes attempts on it. Each of them
// counts its executions in, and takes its extra attempts out.
//
// A strategy inside of another one runs, and counts, once for each attempt of that
// one: a retry with a hedge inside counts a call that succeeds at once twice if they
// share a budget. Let only one of the two have it, or halve the Ratio.
//
// # Why not failsafe-go's
//
// Its budget limits how many retries are running at the same time, as a share of
// the executions that are. An overloaded server that fails at once is retried
// without a limit: there are never many at the same time. And all that is exported
// of it is the rate; what takes from it can be had only from its own executor.
package budget
