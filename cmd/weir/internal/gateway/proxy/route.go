package proxy

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"maps"
	"net/http"
	"net/http/httputil"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/registry"
	"github.com/weir-go/weir/strategies/ratelimit"
	"github.com/weir-go/weir/strategies/timeout"
	"github.com/weir-go/weir/transport/weirhttp"

	"github.com/weir-go/weir/cmd/weir/internal/gateway/upstream"
)

// A route is a route of a table, ready for requests.
type route struct {
	Route
	table    *Table
	position int // in the table
	limited  http.Handler
	proxy    httputil.ReverseProxy
	repeats  bool   // the pipeline may send a request again
	path     string // of the pattern, for metrics
}

func newRoute(t *Table, position int, r Route, limits *weirhttp.Limits) (*route, error) {
	made := &route{Route: r, table: t, position: position}
	if slash := strings.IndexByte(r.Match, '/'); slash >= 0 {
		made.path = r.Match[slash:]
	}
	var transport http.RoundTripper = r.Upstream
	if r.Pipeline != nil {
		attempts, err := weirhttp.NewTransport(r.Pipeline, &weirhttp.TransportOptions{Base: r.Upstream, Idempotent: Repeatable})
		if err != nil {
			return nil, err
		}
		transport = &removable{attempts, r.Upstream}
		made.repeats = true
	}
	made.proxy = httputil.ReverseProxy{
		Rewrite:        made.rewrite,
		Transport:      transport,
		BufferPool:     &buffers,
		ModifyResponse: modifyResponse,
		ErrorHandler:   made.failed,
		ErrorLog:       discard,
	}
	made.limited = http.HandlerFunc(made.forward)
	if limits != nil {
		wrap, err := limits.Wrap(r.Policies...)
		if err != nil {
			return nil, err
		}
		made.limited = wrap(made.limited)
	}
	return made, nil
}

// A removable sends requests through the pipeline of a route, or without it if a newer version of the file no longer has
// that pipeline: a request of the older version that has waited for its policies is not lost.
type removable struct {
	attempts *weirhttp.Transport
	upstream *upstream.Upstream
}

func (t *removable) RoundTrip(r *http.Request) (*http.Response, error) {
	body := upstream.HoldBody(r)
	resp, err := t.attempts.RoundTrip(r)
	if err != nil && errors.Is(err, registry.ErrRemoved) && body.Unread() {
		return t.upstream.RoundTrip(r)
	}
	return resp, err
}

// forward sends an admitted request to the upstream.
func (t *route) forward(w http.ResponseWriter, r *http.Request) {
	x := requestOf(r.Context())
	if t.repeats {
		if err := makeRepeatable(r); err != nil {
			t.failed(w, r, err)
			return
		}
	}
	// The fields that the policies have set are for the answer itself. To pass on a 1xx answer, such as 103 Early Hints, net/http/httputil
	// adds its fields to them and then removes all.
	if h := w.Header(); len(h) > 0 {
		x.answered = maps.Clone(h)
		clear(h)
	}
	t.proxy.ServeHTTP(w, r)
}

// outgoing returns the request that the pipeline of the route would get for a request. It is not sent.
func (t *route) outgoing(r *http.Request) *http.Request {
	out := r.Clone(r.Context())
	t.rewrite(&httputil.ProxyRequest{In: r, Out: out})
	return out
}

// rewrite makes the request for the upstream, which then sets scheme and host. It runs after net/http/httputil has
// removed the hop-by-hop fields, so that a client cannot have the fields removed that it sets.
func (t *route) rewrite(p *httputil.ProxyRequest) {
	x := requestOf(p.In.Context())
	p.Out.URL = x.URL()
	p.Out.URL.Scheme, p.Out.URL.Host = "http", t.Upstream.Name() // until an address is chosen; also what weirhttp.HostFrom returns
	p.Out.Host = ""
	if t.KeepHost {
		p.Out.Host = x.host
	}
	if tunnelsHTTP(p.Out.Header.Get("Upgrade")) {
		for _, name := range []string{"Upgrade", "Connection", "Http2-Settings"} {
			p.Out.Header.Del(name)
		}
	}
	p.Out.GetBody = p.In.GetBody
	p.Out.Trailer = p.In.Trailer // shared, because net/http fills it in when the body has been read
	p.Out.Body = t.table.trust.trailers(p, &x.sender)
	t.table.trust.forward(p, &x.sender, t.StripPrefix)
}

// tunnelsHTTP reports whether a client asks for another version of HTTP, or for TLS, on its connection to the upstream, as
// with "Upgrade: h2c". Such a request goes on without the Upgrade: through the tunnel, the client could send requests
// that no route and no policy sees.
func tunnelsHTTP(upgrade string) bool {
	for protocol := range strings.SplitSeq(strings.ToLower(upgrade), ",") {
		protocol = strings.TrimSpace(protocol)
		if strings.HasPrefix(protocol, "h2") || strings.HasPrefix(protocol, "http") || strings.HasPrefix(protocol, "tls") {
			return true
		}
	}
	return false
}

// Repeatable reports whether a request can be sent again although the upstream may have processed it.
func Repeatable(r *http.Request) bool {
	if r.Header["Upgrade"] != nil { // a connection of its own, such as a WebSocket
		return false
	}
	switch r.Method {
	case http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace, http.MethodPut, http.MethodDelete:
		return true
	}
	return r.Header["Idempotency-Key"] != nil || r.Header["X-Idempotency-Key"] != nil
}

// maxKept is the longest body that is kept so that it can be sent again.
const maxKept = 64 << 10

// makeRepeatable reads the body of a request that may be sent again, if the body is short and the client does not wait
// to be told to send it. All other bodies are passed on as they come, and sent once.
func makeRepeatable(r *http.Request) error {
	if r.ContentLength <= 0 || r.ContentLength > maxKept || r.Header["Expect"] != nil || !Repeatable(r) {
		return nil
	}
	body := make([]byte, r.ContentLength)
	if _, err := io.ReadFull(r.Body, body); err != nil {
		return upstream.NewClientError(err)
	}
	r.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }
	r.Body, _ = r.GetBody()
	return nil
}

// modifyResponse adds the fields of the policies to the answer of the upstream. If both send quota fields that can be there only once,
// those of the gateway stay.
func modifyResponse(resp *http.Response) error {
	if resp.StatusCode < 100 || resp.StatusCode > 999 { // net/http would panic
		return fmt.Errorf("the upstream has answered with the status %03d", resp.StatusCode)
	}
	x := requestOf(resp.Request.Context())
	for name, values := range x.answered {
		if strings.HasPrefix(name, "X-Ratelimit-") {
			resp.Header[name] = values
		} else {
			resp.Header[name] = slices.Concat(values, resp.Header[name])
		}
	}
	return nil
}

// buffers are the buffers for bodies.
var buffers bufferPool

const bufferSize = 32 << 10

type bufferPool struct{ pool sync.Pool }

func (p *bufferPool) Get() []byte {
	if b, ok := p.pool.Get().(*[bufferSize]byte); ok {
		return b[:]
	}
	return new([bufferSize]byte)[:]
}

func (p *bufferPool) Put(b []byte) { p.pool.Put((*[bufferSize]byte)(b)) }

// discard is the log of net/http/httputil, which has only errors of bodies that end early. The access log says that the
// answer was aborted.
var discard = log.New(io.Discard, "", 0)

// ErrShutdown is the cause of the context of requests that still run when the gateway has waited long enough for them.
var ErrShutdown = errors.New("the gateway shuts down")

// failed answers a request that the upstream has not answered.
func (t *route) failed(w http.ResponseWriter, r *http.Request, err error) {
	ctx := r.Context()
	x := requestOf(ctx)
	maps.Copy(w.Header(), x.answered)
	if cause := context.Cause(ctx); cause != nil {
		if _, ok := errors.AsType[*timeout.Error](cause); ok {
			x.fault = cause
			return // the policy whose timeout it is answers
		}
		if errors.Is(cause, ErrShutdown) {
			err = cause
		}
	}
	after, _ := pipeline.RetryAfter(err)
	t.table.answer(w, r, x, statusOf(ctx, err), after, err)
}

// statusOf returns the status of the answer to a request that the upstream has not answered.
func statusOf(ctx context.Context, err error) int {
	var timeout interface{ Timeout() bool }
	isTimeout := errors.As(err, &timeout) && timeout.Timeout() || errors.Is(err, context.DeadlineExceeded)
	_, isLimited := errors.AsType[*ratelimit.RejectedError](err)
	switch {
	case errors.Is(err, ErrShutdown):
		return http.StatusServiceUnavailable
	case isClients(err) && errors.Is(err, os.ErrDeadlineExceeded):
		return http.StatusRequestTimeout // net/http also ends the context then
	case ctx.Err() != nil:
		return weirhttp.StatusClientClosedRequest
	case isClients(err):
		return http.StatusBadRequest
	case isLimited:
		return weirhttp.StatusOf(ctx, err)
	case upstream.NotSent(err):
		return http.StatusBadGateway // also if it was too late to connect: the upstream was not asked
	case isTimeout:
		return http.StatusGatewayTimeout
	}
	if status := weirhttp.StatusOf(ctx, err); status != http.StatusInternalServerError {
		return status
	}
	return http.StatusBadGateway
}

// isClients reports whether the body of the client's request could not be read.
func isClients(err error) bool {
	_, ok := errors.AsType[*upstream.ClientError](err)
	return ok
}
