// Package upstream sends the requests of the gateway to the addresses of an upstream: it balances them, prefers addresses
// that answer, and goes on to the next address if one cannot be reached.
//
//   - upstream.go: which address gets a request, what the attempts of a request have in common, and what an attempt says about the
//     health of its address.
//   - transport.go: the connections. body.go: the body of a request of which perhaps nothing was sent.
package upstream

import (
	"context"
	"crypto/tls"
	"errors"
	"iter"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/registry"
	"github.com/weir-go/weir/strategies/circuitbreaker"
)

// An Address is one server of an upstream. It counts the requests that run there, by which its Upstream chooses: an Address belongs to
// one Upstream.
type Address struct {
	name     string
	url      *url.URL
	path     string // of url, without a slash at its end
	rawPath  string // path as it is written in url
	pipeline *pipeline.Pipeline
	running  atomic.Int64
}

// NewAddress returns an Address of a URL with scheme, host, and perhaps a path, which is put in front of the path of
// requests. p has the circuit breaker of the address and nothing else; nil stands for none.
func NewAddress(u *url.URL, p *pipeline.Pipeline) *Address {
	return &Address{
		name:     u.Host,
		url:      u,
		path:     strings.TrimSuffix(u.Path, "/"),
		rawPath:  strings.TrimSuffix(u.EscapedPath(), "/"),
		pipeline: p,
	}
}

// An Upstream is an [http.RoundTripper] that sends each request to one of several addresses: of two addresses chosen
// at random, the one with fewer requests running. An address whose circuit is open is asked only if no other address can
// be: a circuit never rejects a request. If a connection cannot be made, the request, of which nothing was sent, goes on to
// the next address.
//
// The attempts of one request find each other by the [Exchange] in their context, so that a retry or a hedge goes to
// another address.
type Upstream struct {
	name      string
	addresses []*Address
	base      http.RoundTripper
}

// New returns an Upstream. There must be at least one address.
func New(name string, base http.RoundTripper, addresses ...*Address) *Upstream {
	return &Upstream{name: name, addresses: addresses, base: base}
}

// Name returns the name of the upstream.
func (u *Upstream) Name() string { return u.name }

// Circuits yields the addresses with the pipelines that have their circuit breakers. A pipeline can be nil.
func (u *Upstream) Circuits() iter.Seq2[string, *pipeline.Pipeline] {
	return func(yield func(string, *pipeline.Pipeline) bool) {
		for _, a := range u.addresses {
			if !yield(a.name, a.pipeline) {
				return
			}
		}
	}
}

// RoundTrip sends r to one of the addresses. It changes the URL and the body of r, which must be the caller's own copy. Unlike other
// transports it does not close a body that it has not read, so that the caller can send it elsewhere.
func (u *Upstream) RoundTrip(r *http.Request) (*http.Response, error) {
	x := exchangeOf(r.Context())
	if body := HoldBody(r); body != nil && r.GetBody == nil && !sentAgain(r) {
		r.GetBody = body.again
	}
	if len(u.addresses) == 1 {
		a := u.addresses[0]
		a.running.Add(1)
		return u.send(r, x, a, false)
	}
	original := *r.URL
	order := u.order(x.triedBefore())
	var open []*Address // not asked, because their circuits are open
	var err error
	for i := range len(u.addresses) * 2 {
		circuit := i < len(order)
		if !circuit && len(open) == 0 {
			break
		}
		var a *Address
		if circuit {
			a = order[i]
		} else { // all others were tried: the health of an address only decides when it is asked
			a, open = open[0], open[1:]
		}
		if i > 0 {
			r = again(r, original) // a connection that is still being made may read the request of an earlier address
		}
		a.running.Add(1)
		var resp *http.Response
		if resp, err = u.send(r, x, a, circuit); err == nil {
			return resp, nil
		}
		if _, is := errors.AsType[*circuitbreaker.OpenError](err); is {
			open = append(open, a)
		} else if !NotSent(err) || r.Context().Err() != nil {
			break
		}
	}
	return nil, err
}

// order returns the order in which an attempt tries the addresses: at random, but the addresses of earlier attempts come last, and
// of the first two the one with fewer requests running comes first.
func (u *Upstream) order(tried []*Address) []*Address {
	all := slices.Clone(u.addresses)
	rand.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	rank := func(a *Address) int {
		if slices.Contains(tried, a) {
			return 1
		}
		return 0
	}
	slices.SortStableFunc(all, func(a, b *Address) int { return rank(a) - rank(b) })
	if rank(all[0]) == rank(all[1]) && all[1].running.Load() < all[0].running.Load() {
		all[0], all[1] = all[1], all[0]
	}
	return all
}

// send sends r to an address, which counts it.
func (u *Upstream) send(r *http.Request, x *Exchange, a *Address, circuit bool) (*http.Response, error) {
	a.locate(r.URL)
	s := sending{base: u.base, request: r, exchange: x, address: a}
	resp, err := s.run(circuit)
	if err != nil {
		a.running.Add(-1)
		return nil, err
	}
	x.hold(a)
	return resp, nil
}

// again returns a copy of r for another address, with the URL that the caller gave.
func again(r *http.Request, original url.URL) *http.Request {
	own := *r
	own.URL = &original
	return &own
}

// locate makes u a URL at the address.
func (a *Address) locate(u *url.URL) {
	u.Scheme, u.Host = a.url.Scheme, a.url.Host
	if a.path == "" {
		return
	}
	if raw := a.rawPath + u.EscapedPath(); a.rawPath != a.path || u.RawPath != "" {
		u.RawPath = raw
	}
	u.Path = a.path + u.Path
}

// NotSent reports whether err says that there was no connection to send anything on.
func NotSent(err error) bool {
	op, ok := errors.AsType[*net.OpError](err)
	return ok && op.Op == "dial"
}

// A ClientError is the error of an attempt that failed because the body of the client's request could not be read. It
// says nothing about the address.
type ClientError struct{ err error }

// NewClientError returns the error for a body that could not be read.
func NewClientError(err error) *ClientError { return &ClientError{err} }

func (e *ClientError) Error() string { return "the body of the request: " + e.err.Error() }

// Unwrap returns the error of reading the body.
func (e *ClientError) Unwrap() error { return e.err }

// NotCalled returns true, so that circuits do not count the failure of a client.
func (e *ClientError) NotCalled() bool { return true }

// Retryable returns false.
func (e *ClientError) Retryable() bool { return false }

// An Exchange is what the attempts of one request have in common. The context of the request returns it for [Key]. The
// zero value is ready to use.
type Exchange struct {
	mu       sync.Mutex
	attempts int
	address  string     // of the last attempt
	tried    []*Address // by all attempts
	held     []*Address // that count the request until End
	over     bool
}

// Key is the key of the [*Exchange] in the context of a request.
type Key struct{}

// exchangeOf returns the Exchange of the request, or nil.
func exchangeOf(ctx context.Context) *Exchange {
	x, _ := ctx.Value(Key{}).(*Exchange)
	return x
}

// Attempts returns how many times the request was sent or could not be sent because there was no connection, and the
// address of the last time.
func (x *Exchange) Attempts() (n int, address string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.attempts, x.address
}

// End says that the request is answered: it no longer counts as running at any address.
func (x *Exchange) End() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.over = true
	for _, a := range x.held {
		a.running.Add(-1)
	}
	x.held = nil
}

func (x *Exchange) triedBefore() []*Address {
	if x == nil {
		return nil
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	return slices.Clone(x.tried)
}

func (x *Exchange) begin(a *Address) {
	if x == nil {
		return
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.attempts++
	x.address = a.name
	x.tried = append(x.tried, a)
}

// hold counts the request at a until End. The attempt of a hedge can return after that.
func (x *Exchange) hold(a *Address) {
	if x != nil {
		x.mu.Lock()
		defer x.mu.Unlock()
		if !x.over {
			x.held = append(x.held, a)
			return
		}
	}
	a.running.Add(-1)
}

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
	for again := true; again; {
		unsent.Store(false)
		resp, err = s.base.RoundTrip(r)
		// After an ended connection, net/http may have found that there is no other one.
		again = err != nil && unsent.Load() && !NotSent(err) && r.Context().Err() == nil && body.rewind()
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
