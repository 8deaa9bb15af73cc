// Package reload describes pipelines in a file, YAML or JSON, and keeps a registry in step with the file.
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
//	    store: redis               # shared by all instances, see Kinds.RegisterStore
//	  both:
//	    chain: [upstream, per-client]   # all must grant, in this order
//	pipelines:
//	  orders:
//	    strategies:                # the outermost first
//	      - retry: {max_retries: 5, backoff: exponential, delay: 100ms, jitter: true}
//	      - rate_limiter: {limiter: both}
//	      - timeout: {timeout: 2s}
//	  reports:
//	    strategies:
//	      - rate_limiter: {concurrency: {permit_limit: 4}}   # a limiter of its own
//	      - pipeline: {name: orders}                         # another pipeline of the file
//
// Most programs need [Start], which loads a file and watches it. Its steps can also be called one by one: [Parse]
// reads a file, [File.Change] compares it with the previous one, [registry.Registry.Apply] puts the change in force,
// and [File.Explain] describes the file in words:
//
//	f, err := reload.Parse("weir.yaml", data, kinds)
//	...
//	err = r.Apply(ctx, f.Change(previous))
//
// # What a file can contain
//
// The strategies are rate_limiter, retry, timeout, circuit_breaker, fallback, hedging, pipeline, and chaos_fault,
// chaos_latency, chaos_outcome and chaos_behavior, which do nothing unless they have enabled: true. The limiters are
// token_bucket, fixed_window, sliding_window, calendar, concurrency, unlimited, adaptive, throttler, partitioned and chain. A
// program can add its own, see [Kinds]. For adaptive and throttler, and for the handle of a rate_limiter, it imports
// [github.com/weir-go/weir/reload/adaptive].
//
// The fields of each kind are the fields of its options in package limiter or in the strategy's package. Where the
// options have a function or a value, such as the Handle of a retry or the Action of a fallback, the file has the name
// of a function or value that the program has registered. In addition, a rate_limiter has one limiter, and a retry and
// hedging can name a budget from the field budgets. [Schema] describes all of it for editors.
//
// A token_bucket, fixed_window, sliding_window, calendar, concurrency or partitioned limiter can also have the field store: the
// name of a store, or a mapping with the store's name and the options of
// [github.com/weir-go/weir/store.LimiterOptions]. All instances of the program then share the permits of the limiters
// that have the same name.
//
// In the registry, a shared limiter has the name that it has in the file, and a limiter that is written in a strategy is
// called "pipeline/strategy". Under these names limiters keep what they have counted from one version of the file to the
// next. Therefore, all strategies of a pipeline must have different names: a second rate_limiter or retry needs the
// field name. A budget keeps what it has counted under its name and gets its new options. A circuit breaker keeps its
// state under "pipeline/strategy" as long as none of its options change; otherwise it is made again and starts closed.
//
// # A part of the program's own
//
// [RegisterSection] adds a top-level field that is decoded into a struct of the program, such as the routes of a server.
// It can name limiters and pipelines of the file, give names to key functions and stores, and define pipelines that come
// into force in one change with those of the file.
//
// # What is refused
//
// All problems of a file are reported at once, each with its line and column and how to correct it: unknown fields,
// wrong types, values out of range, unknown names, names with a slash, pipelines that contain themselves, chains in
// chains, duplicate keys. A file without pipelines is refused unless it has allow_empty: true, because a file that is half
// written can have none. The page docs/configuration.md has a table of every kind, and the rules for values.
package reload

// For maintainers: these are the steps from a file to its pipelines. Each step imports only the steps above it.
//
//	internal/document  bytes become nodes with a line, a column and a path
//	internal/decode    nodes become a model.File, or problems with the places of the nodes
//	internal/model     what a file describes, as data; what it can contain
//	file.go            Parse does these steps; internal/explain and internal/schema describe the model
//	change.go          two files become a registry.Change; build.go builds what it defines
//	watch.go           a Watcher applies the change; internal/filewatch calls it when the content changes
//
// kinds.go and tools.go are what the program adds to the model's kinds, and section.go has the top-level fields that it adds.
//
// schema.json is made by the test TestSchema_UpToDate. What a file writes for special numbers, and a default that it must not
// write as 0, stand in the tag reload of a field; what the field is stands in its comment, and its bounds in Validate.
