package rls

import (
	"context"
	"errors"
	"io"
	"log"
	"log/slog"
	"net/http"
	"runtime/debug"
	"sync/atomic"
	"time"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/transport/weirrls"
)

// The bounds of what a client can send. A request has some descriptors, each with some short texts.
const (
	maxRequest     = 256 << 10 // bytes
	maxDescriptors = 1000      // in a request; an empty one has 2 bytes there, and takes a thousand here
	maxHeaders     = 64 << 10  // bytes
	maxStreams     = 1000      // at once, on one connection
	connectTimeout = 10 * time.Second
	// leastPing is how often a client may ping, also without a request: Envoy can be told to, and gRPC's own bound of five
	// minutes would close its connections.
	leastPing = 10 * time.Second
	// askAgain is how long a connection can be silent until the client is asked by a ping whether it is there, and
	// pingTimeout how long it has to answer. Otherwise answers that a client never reads would be kept for hours.
	askAgain    = time.Minute
	pingTimeout = 20 * time.Second
)

// A handler answers requests: each runs through a pipeline whose strategy is a [version], so that a request keeps the
// limiters of its version until it ends.
type handler struct {
	ratelimitv3.UnimplementedRateLimitServiceServer
	pipeline *pipeline.Pipeline
	logger   *slog.Logger
	running  atomic.Int64
}

// callKey is the key of the [*version] of a request in its context.
type callKey struct{}

// ShouldRateLimit implements [ratelimitv3.RateLimitServiceServer]. A panic becomes an error of one request.
func (h *handler) ShouldRateLimit(ctx context.Context, r *ratelimitv3.RateLimitRequest) (answer *ratelimitv3.RateLimitResponse, err error) {
	if n := len(r.GetDescriptors()); n > maxDescriptors {
		return nil, status.Errorf(codes.InvalidArgument, "rls: a request must have at most %d descriptors, got %d", maxDescriptors, n)
	}
	h.running.Add(1)
	defer func() {
		h.running.Add(-1)
		if p := recover(); p != nil {
			h.logger.Error("a request panicked", "panic", p, "stack", string(debug.Stack()))
			answer, err = nil, status.Error(codes.Internal, "the request panicked")
		}
	}()
	var v *version
	err = h.pipeline.Execute(context.WithValue(ctx, callKey{}, &v), func(context.Context) (err error) {
		answer, err = v.service.ShouldRateLimit(ctx, r)
		return err
	})
	if err != nil && v == nil { // the registry is closed
		err = status.Error(codes.Unavailable, err.Error())
	}
	return answer, err
}

// A version is the strategy with the service of one version of the file.
type version struct {
	service     *weirrls.Service
	description description
}

// A description is what is told of a version.
type description struct {
	Domains int `json:"domains"`
	Rules   int `json:"rules"`
}

var errNoCall = errors.New("rls: the pipeline is for the requests of the service")

// Execute gives the version to the request.
func (v *version) Execute(ctx context.Context, next pipeline.Next) (any, error) {
	of, ok := ctx.Value(callKey{}).(**version)
	if !ok {
		return nil, errNoCall
	}
	*of = v
	return next.Run(ctx)
}

// Describe returns how many rules there are, as a [pipeline.Description] has the options of a strategy.
func (v *version) Describe() (options, state any) { return v.description, nil }

// Name returns the name of the strategy.
func (v *version) Name() string { return "rules" }

// newHTTP returns the server of the HTTP listener: what envoyproxy/ratelimit serves on its port 8080.
func newHTTP(h *handler, checks *health.Server, errorLog *log.Logger) *http.Server {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /json", fromProgram(h.serveJSON))
	mux.HandleFunc("GET /healthcheck", func(w http.ResponseWriter, request *http.Request) {
		answer, err := checks.Check(request.Context(), &grpc_health_v1.HealthCheckRequest{})
		if err != nil || answer.GetStatus() != grpc_health_v1.HealthCheckResponse_SERVING {
			w.WriteHeader(http.StatusInternalServerError) // as the other server does
			return
		}
		_, _ = io.WriteString(w, "OK")
	})
	return &http.Server{
		Handler:           mux,
		ReadHeaderTimeout: connectTimeout,
		ReadTimeout:       connectTimeout,
		WriteTimeout:      2 * connectTimeout,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    maxHeaders,
		ErrorLog:          errorLog,
	}
}

// fromProgram refuses what a page in a browser sends: with it, any site that is open on a machine that reaches the listener
// could use up limits and, with a name that leads here, read them. A browser sends Origin with each POST, and there is no
// page that this is for.
func fromProgram(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Origin") != "" || r.Header.Get("Sec-Fetch-Site") != "" {
			http.Error(w, "requests of browsers are not accepted", http.StatusForbidden)
			return
		}
		next(w, r)
	}
}

// serveJSON answers a request in JSON, in protobuf's mapping: 200 or 429 with the response as JSON, 400 if the request is
// wrong.
func (h *handler) serveJSON(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxRequest))
	if err != nil {
		status := http.StatusBadRequest
		if _, large := errors.AsType[*http.MaxBytesError](err); large {
			status = http.StatusRequestEntityTooLarge
		}
		http.Error(w, http.StatusText(status), status)
		return
	}
	var request ratelimitv3.RateLimitRequest
	if err := protojson.Unmarshal(body, &request); err != nil {
		http.Error(w, "the body must be a RateLimitRequest in JSON: "+err.Error(), http.StatusBadRequest)
		return
	}
	answer, err := h.ShouldRateLimit(r.Context(), &request)
	if err != nil {
		http.Error(w, status.Convert(err).Message(), statusOf(err))
		return
	}
	text, err := protojson.Marshal(answer)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	if answer.GetOverallCode() == ratelimitv3.RateLimitResponse_OVER_LIMIT {
		w.WriteHeader(http.StatusTooManyRequests)
	}
	_, _ = w.Write(text) // the client has gone
}

// statusOf returns the status for an error of ShouldRateLimit.
func statusOf(err error) int {
	switch status.Code(err) {
	case codes.InvalidArgument:
		return http.StatusBadRequest
	case codes.Unavailable:
		return http.StatusServiceUnavailable
	default:
		return http.StatusInternalServerError
	}
}
