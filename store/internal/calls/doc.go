// Package calls asks a backend for the limiters of a process.
//
// A [Call] is what a caller asks about one key: to take permits, to give them back, or for a lease. The [Client] puts calls
// that come together into one round trip, sends a call again whose limiter was reconfigured meanwhile, and answers by itself
// while the store is away.
//
//   - client.go: Ask and Send, calls to the backend about definitions, health
//   - shard.go: the parts of a store that fail separately, and when one counts as away
//   - trip.go: which calls go together, and when a round trip begins; how requests of one key become a batch, and its answer those
//     of the calls; what could not be decided, because a definition or a state is outdated
//   - call.go: the Call, who gets its answer, and what happens if its caller has left; how a caller finds what was given back before
//   - link.go: the backend, and how many round trips to it can be under way at once
package calls
