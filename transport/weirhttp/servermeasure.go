package weirhttp

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir/internal/clock"
	"github.com/weir-go/weir/transport/internal/admission"
	"github.com/weir-go/weir/transport/internal/status"
	"github.com/weir-go/weir/transport/weirhttp/internal/handlerio"
)

// A RequestRecorder records the requests that [Measure] measures. A *telemetry.Telemetry is one: it records the
// histogram http.server.request.duration of OpenTelemetry's semantic conventions. A RequestRecorder must be safe for
// concurrent use.
type RequestRecorder interface {
	// RecordRequest is called when a request has ended. ctx is the context of the request, which can have ended.
	//
	//   - method is a method of RFC 9110, PATCH or QUERY; else "_OTHER".
	//   - scheme is "http" or "https".
	//   - route is the route of the request, such as "/orders/{id}"; "" if no route was found.
	//   - status is the status of the response; 0 if the handler has not returned and no response has begun. A status
	//     without a registered meaning is the x00 of its class, and 500 if it has no class, as RFC 9110 tells clients to
	//     understand it. It is [StatusClientClosedRequest] if the client was gone before the response began.
	//   - errorType is "aborted" if the handler has panicked or ended its goroutine, else the status if that is a
	//     failure of the server, from 500 on, else "".
	//   - took is the time from the call of the middleware until the handler has returned. For a WebSocket, whose status
	//     is 101, that is usually the time until it is closed.
	RecordRequest(ctx context.Context, method, scheme, route string, status int, errorType string, took time.Duration)
}

// MeasureOptions are the options of [Measure]. The zero value has the defaults.
type MeasureOptions struct {
	// Route returns the route of a request, such as "/orders/{id}", or "" for a request without a route. It is called
	// when the handler has returned, and must return few different values: never the path. If nil, it is the pattern
	// of the [http.ServeMux] without its method and host.
	Route func(r *http.Request) string `json:"-" yaml:"-"`
}

// Measure returns middleware that records the duration, the route and the status of each request. If o is nil, the defaults
// apply.
//
//	mux.Handle("GET /orders/{id}", limits.Handler(orders, "per-user"))
//	http.ListenAndServe(":8080", weirhttp.Measure(tel, nil)(mux))
//
// Wrap the mux, outside of the limits and of every middleware that answers requests by itself. The rejections of limits,
// the answers of a mux without a route, panics and streams are then measured like all other requests. What a client
// sends cannot make new values: methods that are not known count as one, and requests without a route as another.
//
// A request is measured once. If a handler further inside is wrapped by Measure, too, it only helps to find the route.
// Use that if the route is missing: middleware between Measure and the mux that changes the request with
// [http.Request.WithContext] hides the pattern. The middleware of this package does not.
//
// Measure is for route registration, and panics if recorder is nil; the middleware panics if the handler is nil.
func Measure(recorder RequestRecorder, o *MeasureOptions) func(http.Handler) http.Handler {
	admission.MustNotBeNil("weirhttp", "recorder", recorder)
	route := routeOfMux
	if o != nil && o.Route != nil {
		route = o.Route
	}
	return func(next http.Handler) http.Handler {
		admission.MustNotBeNil("weirhttp", "next", next)
		return &measuredHandler{recorder: recorder, route: route, next: next}
	}
}

// A measuredHandler measures the requests of next.
type measuredHandler struct {
	recorder RequestRecorder
	route    func(r *http.Request) string
	next     http.Handler
}

// A measurement is one request. It is also the context of that request, so that handlers further inside find it.
type measurement struct {
	context.Context // the one that the request came with

	handler  *measuredHandler
	request  *http.Request // the copy that has this context
	response handlerio.Response
	began    time.Duration // by clock.Now
	returned bool          // the handler has returned
	// The route that a measuredHandler further inside has found; nil if there is none. It is atomic, because
	// http.TimeoutHandler runs handlers on a goroutine of their own.
	route atomic.Pointer[string]
}

// measurementKey asks a context for the measurement.
type measurementKey struct{}

// Value returns the measurement itself for measurementKey.
func (m *measurement) Value(key any) any {
	if _, ok := key.(measurementKey); ok {
		return m
	}
	return m.Context.Value(key)
}

// String makes fmt print the context without reading all fields, which would race with handlers further inside.
func (m *measurement) String() string { return fmt.Sprintf("%v.weirhttp", m.Context) }

// ServeHTTP serves the request and records it.
func (h *measuredHandler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if outer, ok := r.Context().Value(measurementKey{}).(*measurement); ok {
		defer func() { // the handler can be a mux, which sets the pattern
			if route := h.route(r); route != "" {
				outer.route.Store(&route)
			}
		}()
		h.next.ServeHTTP(w, r)
		return
	}
	m := &measurement{Context: r.Context(), handler: h}
	m.response.Observe(w, r)
	m.request = handlerio.WithContext(r, m)
	m.began = clock.Now()
	defer m.end(r)
	h.next.ServeHTTP(m.response.Writer(), m.request)
	m.returned = true
}

// end records the request. r is the request that the middleware got.
func (m *measurement) end(r *http.Request) {
	took := clock.Now() - m.began
	handlerio.CarryBack(m.request, r)
	if !m.returned {
		handlerio.RemoveFiles(r)
	}
	answered := m.status()
	RecordRequest(m.handler.recorder, r, m.routeFor(answered), answered, m.returned, took)
}

// RecordRequest records a request as [Measure] does, for servers that do not use Measure. r is the request as it came, route is "" if
// there was none, and status is 0 if no response has begun. returned is false if the handler has panicked.
func RecordRequest(recorder RequestRecorder, r *http.Request, route string, status int, returned bool, took time.Duration) {
	if status != 0 {
		status = knownStatus(status)
	}
	errorType := ""
	switch {
	case !returned:
		errorType = "aborted"
	case status >= 500:
		errorType = strconv.Itoa(status)
	}
	scheme := "http"
	if r.TLS != nil {
		scheme = "https"
	}
	recorder.RecordRequest(r.Context(), knownMethod(r.Method), scheme, route, status, errorType, took)
}

// status returns the status of the response.
func (m *measurement) status() int {
	switch {
	case m.response.Begun():
		return m.response.Status()
	case !m.returned:
		return 0
	case m.Err() != nil && status.OfContext(m.Context) == status.Gone:
		return StatusClientClosedRequest
	default:
		return http.StatusOK // the server sends it
	}
}

// routeFor returns the route of a request that was answered with the status.
func (m *measurement) routeFor(status int) string {
	if m.request.Method == http.MethodConnect && status/100 == 3 {
		return "" // the pattern of a redirect of CONNECT is the path of the request
	}
	if route := m.route.Load(); route != nil {
		return *route
	}
	return m.handler.route(m.request)
}

// routeOfMux is the default of [MeasureOptions.Route].
func routeOfMux(r *http.Request) string {
	if i := strings.IndexByte(r.Pattern, '/'); i > 0 {
		return r.Pattern[i:]
	}
	return r.Pattern
}

// knownMethod returns the method, or "_OTHER" if it is not known. It returns a constant, because the method of a request
// keeps the whole request line in memory.
func knownMethod(method string) string {
	for _, known := range [...]string{
		http.MethodGet, http.MethodPost, http.MethodPut, http.MethodHead, http.MethodDelete, http.MethodPatch,
		http.MethodOptions, http.MethodConnect, http.MethodTrace, "QUERY",
	} {
		if method == known {
			return known
		}
	}
	return "_OTHER"
}

// knownStatus returns the status or, if it is not registered, the one that stands for it by RFC 9110, section 15.
func knownStatus(status int) int {
	switch {
	case http.StatusText(status) != "", status == StatusClientClosedRequest:
		return status
	case status < 100 || status > 599:
		return http.StatusInternalServerError
	default:
		return status / 100 * 100
	}
}
