package main

import (
	"context"
	"log/slog"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	exporter "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/weir-go/weir/telemetry"
)

// signals is what an instance tells of itself: metrics for Prometheus, logs, and traces if the environment names a place for
// them.
type signals struct {
	telemetry *telemetry.Telemetry
	metrics   http.Handler
	logger    *slog.Logger
	tracer    trace.Tracer // never nil
	closers   []func(context.Context) error
}

func newSignals(ctx context.Context, name string, logger *slog.Logger) (*signals, error) {
	logger = slog.New(withTrace{logger.Handler()}).With("instance", name)
	s := &signals{logger: logger}
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { logger.Warn("export", "error", err) }))
	about, err := resource.New(ctx, resource.WithAttributes(
		attribute.String("service.name", "partner"), attribute.String("service.instance.id", name)))
	if err != nil {
		return nil, err
	}
	registry := prometheus.NewRegistry()
	reader, err := exporter.New(exporter.WithRegisterer(registry), exporter.WithoutScopeInfo())
	if err != nil {
		return nil, err
	}
	meters := metric.NewMeterProvider(metric.WithReader(reader), metric.WithResource(about))
	s.closers = append(s.closers, meters.Shutdown)
	s.metrics = promhttp.HandlerFor(registry, promhttp.HandlerOpts{})
	traces, err := newTraces(ctx, about)
	if err != nil {
		s.close()
		return nil, err
	}
	s.closers = append(s.closers, traces.Shutdown)
	s.tracer = traces.Tracer("github.com/weir-go/weir/examples/partner")
	s.telemetry, err = telemetry.New(&telemetry.Options{MeterProvider: meters, TracerProvider: traces, Logger: logger})
	if err != nil {
		s.close()
		return nil, err
	}
	s.closers = append(s.closers, func(context.Context) error { return s.telemetry.Close() })
	return s, nil
}

// newTraces exports spans by OTLP if the environment says where to. The exporter reads the variables itself.
func newTraces(ctx context.Context, about *resource.Resource) (*sdktrace.TracerProvider, error) {
	if os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT") == "" && os.Getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") == "" {
		return sdktrace.NewTracerProvider(sdktrace.WithSampler(sdktrace.NeverSample())), nil
	}
	out, err := otlptracehttp.New(ctx)
	if err != nil {
		return nil, err
	}
	return sdktrace.NewTracerProvider(sdktrace.WithBatcher(out), sdktrace.WithResource(about)), nil
}

// close exports what is left, for at most five seconds. A collector that is away does not make the end of an instance an
// error.
func (s *signals) close() {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	for _, closer := range slices.Backward(s.closers) {
		if err := closer(ctx); err != nil {
			s.logger.Warn("export what is left", "error", err)
		}
	}
}

// limiterError is the field of the header that says why a limiter has not decided: a code of PostgreSQL, or one of these.
const (
	limiterError = "Limiter-Error"
	storeAway    = "store away" // weir's
	undecided    = "timeout"    // a SQL variant's
)

// observe traces and logs the requests of a route.
func (s *signals) observe(route string, next http.Handler) http.Handler {
	_, path, _ := strings.Cut(route, " ")
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		began := time.Now()
		ctx := propagation.TraceContext{}.Extract(r.Context(), propagation.HeaderCarrier(r.Header))
		ctx, span := s.tracer.Start(ctx, route, trace.WithSpanKind(trace.SpanKindServer))
		defer span.End()
		answered := &statusWriter{ResponseWriter: w, status: http.StatusOK}
		next.ServeHTTP(answered, r.WithContext(ctx))
		span.SetAttributes(
			attribute.String("http.request.method", r.Method), attribute.String("http.route", path),
			attribute.Int("http.response.status_code", answered.status))
		attrs := []slog.Attr{
			slog.String("route", route), slog.Int("status", answered.status),
			slog.Float64("duration_ms", float64(time.Since(began))/1e6),
		}
		if cause := w.Header().Get(limiterError); cause != "" {
			attrs = append(attrs, slog.String("limiter_error", cause))
		}
		level := slog.LevelInfo
		if answered.status >= http.StatusInternalServerError {
			span.SetStatus(codes.Error, http.StatusText(answered.status))
			level = slog.LevelError
		}
		s.logger.LogAttrs(ctx, level, "request", attrs...)
	})
}

// A statusWriter remembers the status of the answer.
type statusWriter struct {
	http.ResponseWriter
	status int
}

func (w *statusWriter) WriteHeader(status int) {
	w.status = status
	w.ResponseWriter.WriteHeader(status)
}

func (w *statusWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// withTrace adds the ids of the trace and the span to a line of the log, so that a line leads to its trace.
type withTrace struct{ slog.Handler }

func (h withTrace) Handle(ctx context.Context, r slog.Record) error {
	if c := trace.SpanContextFromContext(ctx); c.IsSampled() {
		r.AddAttrs(slog.String("trace_id", c.TraceID().String()), slog.String("span_id", c.SpanID().String()))
	}
	return h.Handler.Handle(ctx, r)
}

func (h withTrace) WithAttrs(attrs []slog.Attr) slog.Handler {
	return withTrace{h.Handler.WithAttrs(attrs)}
}

func (h withTrace) WithGroup(name string) slog.Handler { return withTrace{h.Handler.WithGroup(name)} }
