// Package simulate tells what a configuration of pipelines would do under a load, before the configuration is used.
//
// [Run] sends the requests of a [Scenario] through real pipelines of a real registry, in virtual time: ten minutes take
// seconds. The limiters, retries, timeouts and circuit breakers are the ones that run in production, not a model of them.
// Only what is outside the pipelines is simulated: the [Load], the [Service] that the requests are for, and how [Clients]
// react to errors. A [Comparison] of two results says what a change of the configuration would do, and an [Expectation]
// makes a test of it.
//
// Two runs of the same Scenario have the same [Result], to the byte.
//
// # How it works
//
// A run is a bubble of [testing/synctest] (internal/bubble is the door to it), in which the clock moves on when every
// goroutine waits. Each request in flight has a goroutine. What goroutines do at the same instant could come in any order,
// so only one of them runs at a time: the one that has the turn. A gate before and after each strategy makes a goroutine that
// something else has woken, such as a limiter that grants it a permit, wait for its turn. Turns at one instant go by the
// number of the request.
//
// # For maintainers
//
// The files in reading order: scenario.go is what is simulated, with the rates of rates.go and the distributions of kinds.go;
// setup.go makes the pipelines; run.go has the bubble and its loop; turn.go and gate.go decide which goroutine runs;
// clientrun.go sends the requests of arrivals.go, and serving.go answers them; collector.go makes the result of result.go,
// with what measure.go measures. scenariofile.go reads a scenario, and internal/input recordings. The rest is about results:
// compare.go compares two; metric.go has their numbers for the expectations of expect.go and the reports of resultreport.go
// and comparisonreport.go, which internal/render writes.
//
// Outside of this package, there are two doors by which a simulation differs from production: internal/deterministic for
// limiters, strategies and registries, and the Interpose of a registry's listener, which puts gates between strategies.
package simulate
