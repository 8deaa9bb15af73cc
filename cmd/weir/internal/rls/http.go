package rls

import (
	"errors"
	"io"
	"net/http"
	"time"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
)

// newHTTP returns the server of the HTTP listener: what envoyproxy/ratelimit serves on its port 8080.
func (r *run) newHTTP(h *handler, checks *health.Server) *http.Server {
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
		ErrorLog:          r.ServerLog(),
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
