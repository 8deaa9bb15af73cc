// Package weirredis keeps the state of limiters in Redis 7 or newer, or Valkey: one
// server, one behind Sentinel, or a Cluster.
//
// # What is stored
//
// With the prefix "weir", a limiter's name and a key of it:
//
//	weir:{name:4f}:s:key   the state of a bucket or a window: a string, gone when it is full
//	weir:{name:4f}:l:key   the leases of a concurrency limiter: a hash, gone within an hour after the last one's end
//	weir:{name:45}:def     the definition of the limiter, and its 127 copies; they stay
//	weir:notices           the channel on which instances tell each other what has happened
//
// In names the bytes }, % and : are written %7D, %25 and %3A. The part in braces decides which slot of a Cluster has a
// key: the keys of a limiter are divided among 128 places, by a hash of the key, each with a copy of the definition, so
// that every decision sees the limits in force. A user of the server needs access to these keys and the channel, and the commands that the scripts use; one who may not
// publish can limit all the same, but others learn later of what happens.
//
// # Time
//
// Everything is decided by the clock of the server that has the key. In a Cluster the servers' clocks should agree
// to well within a period of a limiter.
//
// If that clock steps forwards, permits come back as if the time had gone by, and leases end whose TTL is
// shorter than the step: their holders learn it at the next Renew. If it steps backwards, what is
// missing stays missing and comes back at its pace by the new time; leases last no longer than their
// TTL from the moment that the step is noticed, which is at the next Hold of the key.
//
// # What is sent twice
//
// Nothing. go-redis by itself would send a command again if the answer does not come, and a permit would be
// taken twice. So decisions are sent once, whatever the client's MaxRetries; what comes of an error is for package store.
// An exception is a server that has lost its scripts: it says so before it decides, and is then sent the script.
//
// # Durability
//
// As the server's: one that restarts empty has forgotten what was taken and who holds a lease, and so has a replica
// that became the master before it heard of the last changes. Fences grow nevertheless, as they follow the server's
// clock; only a clock that steps back while the server has forgotten the key can make one smaller.
package weirredis
