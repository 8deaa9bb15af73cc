package upstream

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"net/http/httptrace"
	"sync/atomic"

	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/registry"
)

// A sending is one request to one address.
type sending struct {
	base     http.RoundTripper
	request  *http.Request
	exchange *Exchange
	address  *Address
}

// run sends the request: through the circuit breaker of the address if it has one that decides.
func (s *sending) run(circuit bool) (*http.Response, error) {
	p := s.address.pipeline
	if p == nil || !circuit {
		return s.send(s.request)
	}
	j := judged{sending: *s}
	resp, err := pipeline.ExecuteValue(s.request.Context(), p, j.send)
	if err == nil {
		return resp, nil
	}
	if errors.Is(err, registry.ErrRemoved) {
		return s.send(s.request) // a newer version of the file does not have the address: this request has begun before
	}
	if neither, ok := errors.AsType[*neitherError](err); ok {
		err = neither.error
	}
	return nil, err
}

// send sends r. If the server has closed the connection that net/http has chosen, r goes on to another one.
func (s *sending) send(r *http.Request) (resp *http.Response, err error) {
	s.exchange.begin(s.address)
	body, held := r.Body.(*HeldBody)
	if !held && sentAgain(r) {
		return s.base.RoundTrip(r)
	}
	var unsent atomic.Bool
	trace := &httptrace.ClientTrace{GotConn: func(info httptrace.GotConnInfo) { unsent.Store(info.WasIdle && closeIfEnded(info.Conn)) }}
	r = r.WithContext(httptrace.WithClientTrace(r.Context(), trace))
	for {
		if resp, err = s.base.RoundTrip(r); err == nil || !unsent.Load() || r.Context().Err() != nil || !body.rewind() {
			break
		}
	}
	if err != nil && body.failure() != nil {
		return nil, &ClientError{body.failure()}
	}
	return resp, err
}

// sentAgain reports whether net/http sends a request again that was written to a connection which then broke off, if it has no body or
// can get the body again. With a GetBody that fails, the error would not say why the connection broke off.
func sentAgain(r *http.Request) bool {
	switch r.Method {
	case http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace:
		return true
	}
	return r.Header["Idempotency-Key"] != nil || r.Header["X-Idempotency-Key"] != nil
}

// closeIfEnded closes a connection that waited for a request, and that the server has closed meanwhile. net/http finds that out only
// when the goroutine that reads from the connection runs. A request that was written by then is lost, unless it may be sent twice;
// with the connection closed, nothing of it is written.
func closeIfEnded(c net.Conn) bool {
	socket := c
	if secure, ok := c.(*tls.Conn); ok {
		socket = secure.NetConn()
	}
	if !ended(socket) {
		return false
	}
	_ = c.Close()
	return true
}

// A judged is a sending whose outcome counts for the circuit of the address.
type judged struct {
	sending
	trace      httptrace.ClientTrace
	connection atomic.Uint32 // that the request was sent on, the last one if net/http has sent it again
	connecting atomic.Bool   // to the address: the request does not only wait for one of max_connections
}

const (
	noConnection uint32 = iota
	newConnection
	usedConnection
)

// send ignores the context of the pipeline, whose only strategy is a circuit breaker: the request has its own.
func (j *judged) send(context.Context) (*http.Response, error) {
	j.trace.DNSStart = func(httptrace.DNSStartInfo) { j.connecting.Store(true) }
	j.trace.ConnectStart = func(string, string) { j.connecting.Store(true) }
	j.trace.GotConn = func(info httptrace.GotConnInfo) {
		if info.Reused {
			j.connection.Store(usedConnection)
		} else {
			j.connection.Store(newConnection)
		}
	}
	resp, err := j.sending.send(j.request.WithContext(httptrace.WithClientTrace(j.request.Context(), &j.trace)))
	if err != nil && !j.ofAddress(err) {
		err = &neitherError{err}
	}
	return resp, err
}

// ofAddress reports whether err says that the address is not healthy. If the request has ended before the answer, its client or
// its route was impatient, unless the address could not be connected to. A request that has only waited for one of
// max_connections says nothing: the address is busy. A connection that has been used can be closed by a server at
// any time, also while the next request is on its way: only a server that is silent for response_header_timeout fails then.
func (j *judged) ofAddress(err error) bool {
	var timeout interface{ Timeout() bool }
	switch connection := j.connection.Load(); {
	case connection == noConnection:
		return j.connecting.Load() || NotSent(err)
	case j.request.Context().Err() != nil:
		return false
	case connection == usedConnection:
		return errors.As(err, &timeout) && timeout.Timeout()
	default:
		return true
	}
}

// A neitherError is an error that says nothing about the address: the circuit counts neither a success nor a failure.
type neitherError struct{ error }

// NotCalled returns true, which is how a circuit knows.
func (e *neitherError) NotCalled() bool { return true }
