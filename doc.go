// Package weir is the root of a resilience toolkit for Go: rate and concurrency limiters, in one process or shared
// through Redis or PostgreSQL, and retries, timeouts, circuit breakers, hedging and fallbacks, composed into named
// pipelines that a program builds in code or loads from a file and reloads while it runs.
//
// This package holds only what all the others share: [OptionsError] and [Must]. Most programs begin with one of these:
//
//   - [github.com/weir-go/weir/limiter]: token bucket, fixed and sliding window, concurrency limit, one limiter for
//     each key. It imports nothing outside the standard library but this package.
//   - [github.com/weir-go/weir/pipeline]: runs a function through strategies, outermost first.
//   - [github.com/weir-go/weir/strategies/ratelimit], [github.com/weir-go/weir/strategies/retry],
//     [github.com/weir-go/weir/strategies/timeout], [github.com/weir-go/weir/strategies/circuitbreaker],
//     [github.com/weir-go/weir/strategies/hedge], [github.com/weir-go/weir/strategies/fallback] and the other strategies.
//   - [github.com/weir-go/weir/transport/weirhttp]: HTTP middleware, and a RoundTripper.
//   - [github.com/weir-go/weir/transport/weirgrpc]: interceptors for gRPC servers and clients.
//   - [github.com/weir-go/weir/transport/weirrls]: the rate limit service that Envoy asks.
//   - [github.com/weir-go/weir/store] with [github.com/weir-go/weir/store/weirredis] or
//     [github.com/weir-go/weir/store/weirpostgres]: the same limits across machines.
//   - [github.com/weir-go/weir/registry] and [github.com/weir-go/weir/reload]: pipelines by name, from a configuration
//     file, rebuilt while the program runs.
//   - [github.com/weir-go/weir/telemetry]: metrics, spans and log lines of all of it through OpenTelemetry and slog.
//   - [github.com/weir-go/weir/dashboard]: pages of what a program does right now, and actions for operators.
//   - [github.com/weir-go/weir/simulate]: what a configuration would do under a load, in virtual time.
//   - [github.com/weir-go/weir/jobs]: limits for background jobs on River.
//   - [github.com/weir-go/weir/weirtest]: a limiter with a script and a recorder of events, for tests of your own code.
package weir
