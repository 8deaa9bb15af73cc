// Package weirredis keeps the state of limiters in Redis 7 or newer, or Valkey: one server, one behind Sentinel, or a
// Cluster.
//
// # What is stored
//
// With the prefix "weir", for a limiter's name and a key of it:
//
//	weir:{name:4f}:s:key   the state of a bucket or window: a string, deleted when it is full
//	weir:{name:4f}:l:key   the leases of a concurrency limiter: a hash, deleted within an hour after the end of the last one
//	weir:{name:45}:def     the definition of the limiter, and its 127 copies, which stay
//	weir:notices           the channel for notices to other instances
//
// In names, the bytes }, % and : are written %7D, %25 and %3A. The keys of a limiter are divided among 128 places by a
// hash of the key. The number of the place is in braces with the name, and this part decides which slot of a Cluster has
// the key. Each place has a copy of the definition, so that every decision sees the limits in force. The server's user
// needs access to these keys, to the channel, and to the commands in the scripts; the page on shared limits has a line for
// ACL SETUSER. Without the right to publish, limits hold, but other instances learn of changes later.
//
// While a slot is moved to another server, a key whose state and copy of the definition are on different servers cannot be
// decided. All other keys are decided as usual.
//
// # Time
//
// Everything is decided by the clock of the server that has the key. In a Cluster the servers' clocks should agree to
// well within a period of a limiter.
//
// If that clock steps forwards, permits come back as if the time had passed. Leases whose TTL is shorter than the step
// end, and their holders learn it at the next Renew. If the clock steps backwards, missing permits stay missing, and
// come back at the usual rate by the new time. At the next Acquire of the key, leases are shortened to their TTL.
//
// # Commands are sent once
//
// By default, go-redis sends a command again if no answer comes, so that a permit could be taken twice. Therefore, the
// Backend sends each decision once, whatever the client's MaxRetries. There is one exception: a server that has lost its
// scripts answers with an error before it decides, and the Backend then sends the decision with the script.
//
// # Durability
//
// What is stored is as durable as the server. After a server has restarted empty, all keys are full, and no leases are
// held. A replica that becomes the master has lost the changes that it did not receive. Fencing tokens grow
// nevertheless, because they follow the server's clock. A token can be smaller only if the clock steps back and the key
// is lost, too.
package weirredis
