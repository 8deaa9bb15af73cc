// Package simulate tells what a configuration of pipelines would do under a load, before it is set.
//
// [Run] sends the requests of a [Scenario] through real pipelines of a real registry, in virtual time: ten minutes take
// seconds. The limiters, retries, timeouts and circuit breakers are the ones that run in production, not a model of them.
// Only what is outside the pipelines is simulated: the [Load], the [Service] that the requests are for, and how [Clients]
// react to rejections.
//
// Two runs of the same Scenario have the same [Result], to the byte.
//
// # How it works
//
// A run is a bubble of [testing/synctest], in which the clock moves on when every goroutine waits. Each request in flight
// has a goroutine. What goroutines do at the same instant could come in any order, so only one of them runs at a time:
// the one that has the turn. A gate before and after each strategy makes a goroutine that something else has woken, such
// as a limiter that grants it a permit, wait for its turn. Turns at one instant go by the number of the request.
//
// The files that matter, in reading order: scenario.go, load.go, run.go, turn.go, client.go, service.go, result.go.
// Of what shows results: tableresult.go has the tables, chartresult.go the pictures, html.go the page of both, compare.go
// what is said of two results, and expect.go the expectations.
package simulate
