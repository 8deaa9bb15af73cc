// Package telemetry exports what happens in pipelines: metrics and spans through OpenTelemetry, log lines through slog.
//
//	t, err := telemetry.New(&telemetry.Options{Logger: slog.Default()})
//	…
//	defer t.Close()
//	p, err := pipeline.Config{Name: "orders", Strategies: …, Listener: t}.Build()
//
// With a registry, a [Telemetry] is the registry's Listener. The registry calls its ObserveLimiter for the limiters that
// it owns:
//
//	r := registry.New(&registry.Options{Listener: t, ObserveLimiter: t.ObserveLimiter})
//
// [Telemetry.ObserveStore] exports the state of a store of shared limiters, and [Telemetry.OnStoreEvent] logs its events.
// [Telemetry.RecordRequest] exports the HTTP requests that the middleware weirhttp.Measure measures. The page
// docs/telemetry.md lists every instrument, event and attribute.
//
// # Cardinality
//
// The attributes of metrics are the names of the pipeline, its instance and its strategies, the operation of
// [pipeline.WithOperation], the type of an error, and the number of an attempt. The key of a partition is never an
// attribute. [Options.MaxSeries] bounds the number of combinations, including those of attributes that [Options.Enrich]
// adds.
//
// # Cost
//
// When an execution begins, the pipeline asks [Telemetry.Enabled]. If no metric is read, no span records and the logger
// would write nothing, the execution reports nothing. Counters are atomics of this package that are read when metrics are
// collected; only durations are recorded in OpenTelemetry at once. An execution allocates nothing for its metrics once
// its combination of attributes has been seen. Span events and log lines are built only if the span records or the logger
// would write the line.
//
// # For maintainers
//
// telemetry.go has what programs call. An event goes from there through metrics.go, which finds its series and counts it, log.go and
// span.go. series.go keeps series, and says what bounds them. observe.go has what collections ask: limiters, stores and the
// configuration. instruments.go has the table of the instruments, and exports what was counted
// when metrics are collected.
package telemetry
