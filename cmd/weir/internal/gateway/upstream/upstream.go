// Package upstream sends the requests of the gateway to the addresses of an upstream: it balances them, prefers addresses
// that answer, and goes on to the next address if one cannot be reached.
//
//   - upstream.go: which address gets a request.
//   - sending.go: one request to one address, and what it says about the health of the address.
//   - exchange.go: what the attempts of a request have in common.
//   - transport.go: the connections. body.go: the body of a request of which perhaps nothing was sent.
package upstream

import (
	"errors"
	"iter"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/strategies/circuitbreaker"
)

// An Address is one server of an upstream. It counts the requests that run there, so use an Address for one Upstream
// only.
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
