// Package store has limiters whose state many instances of a service share: token bucket,
// fixed window, sliding window and concurrency, each for one thing or partitioned by key.
// They are [limiter.Limiter] and [limiter.Partitioned] like those of package limiter and
// take the same options, so that a program moves from one process to many by changing a
// constructor.
//
// Where the state is kept is the matter of a [backend.Backend]: packages weirredis and
// weirpostgres have one each, and make a [Store] of it.
package store
