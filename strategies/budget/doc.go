// Package budget keeps retries and hedges from multiplying an overload: it limits the extra attempts to a share of the
// executions.
//
//	extra := weir.Must(budget.New(&budget.Options{Ratio: 0.1}))
//	orders, err := pipeline.New("orders", retry.New(&retry.Options{Budget: extra}))
//	prices, err := pipeline.New("prices", hedge.New(&hedge.Options{Budget: extra}))
//
// Suppose that a server fails every call. With three retries each, it gets four times the load when it can handle the
// least; with two layers that retry, sixteen times. With a budget of a tenth it gets at most 1.1 times the load, and a
// call that fails now and then is still retried.
//
// # What to share
//
// Make one budget for each thing that can be overloaded, such as a server or a database, and give it to every strategy
// that makes attempts on it. Each of them counts its executions in the budget, and takes its extra attempts from it.
//
// A strategy inside another one runs, and counts, once for each attempt of the outer one. If a retry and a hedge inside
// it share a budget, a call that succeeds at once counts twice. Give the budget to only one of the two, or halve the
// Ratio.
//
// # Why not failsafe-go's
//
// The budget of failsafe-go limits how many retries run at the same time, as a share of the executions that run. It does
// not limit the retries on an overloaded server that fails at once, because few of them run at the same time. And only
// failsafe-go's own executor can take from it.
package budget
