// Package reload describes pipelines in a file, YAML or JSON, and keeps a registry
// in step with it.
//
//	limiters:                      # shared, by name
//	  upstream:
//	    token_bucket: {token_limit: 100, tokens_per_period: 10, replenishment_period: 100ms, queue_limit: 50}
//	  per-client:
//	    partitioned:
//	      key: client_ip           # a function that the program registers, see Kinds.RegisterKey
//	      max_partitions: 10000
//	      each:
//	        fixed_window: {permit_limit: 20, window: 1s}
//	  logins:
//	    token_bucket: {token_limit: 100, tokens_per_period: 100, replenishment_period: 1s}
//	    store: redis             # shared by all instances; see Kinds.RegisterStore
//	  both:
//	    chain: [upstream, per-client]   # all must grant, in this order
//	pipelines:
//	  orders:
//	    strategies:                # outermost first
//	      - retry: {max_retries: 5, backoff: exponential, delay: 100ms, jitter: true}
//	      - rate_limiter: {limiter: both}
//	      - timeout: {timeout: 2s}
//	  reports:
//	    strategies:
//	      - rate_limiter: {concurrency: {permit_limit: 4}}   # its own
//	      - pipeline: {name: orders}                         # another one of the file
//
// Most programs want [Start], which loads a file and watches it. It is made of parts
// that also serve alone: [Parse] reads, [File.Change] says what that changes,
// [registry.Registry.Apply] does it, and [File.Explain] says it in words:
//
//	f, err := reload.Parse("weir.yaml", data, kinds)
//	...
//	err = r.Apply(ctx, f.Change(previous))
//
// # What can be written
//
// Strategies are rate_limiter, retry, timeout, circuit_breaker, fallback, hedging,
// pipeline, and chaos_fault, chaos_latency, chaos_outcome and chaos_behavior, which do
// nothing unless they say enabled: true. Limiters are token_bucket, fixed_window,
// sliding_window, concurrency, unlimited, adaptive, throttler, partitioned and chain.
// A program can add its own, see [Kinds]. Their fields are those of the options of package limiter and of
// the strategies' packages. What is a function or a value there, such as the handle of
// a retry or the action of a fallback, is the name of one that the program has
// registered. A rate_limiter has one limiter besides, and a retry and hedging may name
// a budget that stands under budgets. [Schema] has all of it for editors.
//
// A limiter of one of the first four kinds, or a partitioned one, may have a store beside
// its kind: the name of one, or a mapping with its name and how to deal with it, see
// [github.com/weir-go/weir/store.LimiterOptions]. Then its permits are those of all instances
// of the program, by the same name.
//
// A shared limiter goes by its name in the registry, too; one that is written in a
// strategy by "pipeline/strategy". Under those names they keep what they have
// counted from one version of the file to the next. That is why two strategies of a
// pipeline cannot have one name: the second retry needs a name of its own. A budget
// keeps what it has counted by its name, and gets its new options. A circuit breaker
// keeps its state by "pipeline/strategy" as long as nothing about it changes; one that
// changes is made anew, and starts closed.
//
// # Strict
//
// Everything that is wrong is reported at once, with line and column and what would
// be right: unknown fields, wrong types, values out of range, names that nothing
// has, pipelines and chains that contain themselves, keys that are there twice.
//
//   - Durations are texts with a unit, such as 250ms or 1m30s.
//   - Whole numbers are decimal; 010 means different things to different readers.
//   - "off" is, where a field takes it, what -1 is in a program, such as for a retry's
//     max_retries and delay; -1 will do, too. "forever" is max_retries without end.
//   - A 0 that would stand for a default which is not 0 is refused, because it does
//     not look like it: leave the field out instead.
//   - What has no value, as in "retry:" alone, is refused; {} is all defaults.
//   - A file without pipelines is refused, because half a file may look like that,
//     unless it says allow_empty: true.
//   - Aliases and merge keys work; top-level fields that begin with x- are a place
//     for their anchors. Tags are refused. What an anchor stands for is reported
//     where the anchor is.
//   - A file has one document, at most 1 MiB, in UTF-8. JSON is read as the YAML
//     that it is, but for characters escaped in two halves (\ud83d\ude00): write
//     them as they are.
package reload
