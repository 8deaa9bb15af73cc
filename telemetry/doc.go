// Package telemetry tells OpenTelemetry and slog what happens in pipelines:
// metrics, events on the current span, log lines.
//
//	t, err := telemetry.New(&telemetry.Options{Logger: slog.Default()})
//	…
//	defer t.Close()
//	p, err := pipeline.Config{Name: "orders", Strategies: …, Listener: t}.Build()
//
// With a registry it is the registry's Listener, and its ObserveLimiter is what
// the registry calls for the limiters that it owns:
//
//	r := registry.New(&registry.Options{Listener: t, ObserveLimiter: t.ObserveLimiter})
//
// Every instrument, every event and every attribute is in docs/telemetry.md,
// beside what it is called in Polly.
//
// # Cardinality
//
// Metrics have the names of the pipeline, its instance and its strategies, the
// operation of [pipeline.WithOperation], the type of an error, and the number of an
// attempt. The key of a partition is never an attribute. How many different
// combinations are kept has a bound, see [Options.MaxSeries]; what a program adds
// with [Options.Enrich] counts, too.
//
// # Cost
//
// An execution asks once whether anybody wants to know, and if nobody does it
// reports nothing. What is counted is counted in atomics of our own, which are
// read when metrics are collected; only durations go to OpenTelemetry at once. No
// execution allocates for its metrics, once a combination of attributes has been
// seen. An event is put together for a span or a log only if the span records and
// the log would take the line.
package telemetry
