// Package upstream sends the requests of the gateway to the addresses of an upstream: it balances them, leaves out
// addresses that do not answer, and goes on to the next address if one cannot be reached.
package upstream

import (
	"context"
	"errors"
	"iter"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/registry"
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
// requests. p has the circuit breaker of the address; nil stands for none.
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
// at random, the one with fewer requests running. An address whose circuit is open is left out. If a connection cannot
// be made, the request, of which nothing was sent, goes on to the next address.
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
	HoldBody(r)
	c := choice{all: u.addresses, tried: x.triedBefore()}
	c.gone = c.array[:0]
	original := *r.URL
	var unavailable *UnavailableError
	for {
		a := c.next()
		if a == nil {
			*r.URL = original
			if unavailable == nil {
				unavailable = &UnavailableError{Upstream: u.name}
			}
			return nil, unavailable
		}
		if len(c.gone) > 1 {
			r = again(r, original) // a connection that is still being made may read the request of an earlier address
		}
		a.locate(r.URL)
		x.begin(a)
		resp, err := a.roundTrip(u.base, r)
		if err == nil {
			x.hold(a)
			return resp, nil
		}
		a.running.Add(-1)
		if open, ok := errors.AsType[*circuitbreaker.OpenError](err); ok {
			x.forget(a)
			unavailable = unavailable.sooner(u.name, open)
			continue
		}
		if _, ok := errors.AsType[*ClientError](err); ok {
			return nil, err
		}
		if c.another() && r.Context().Err() == nil && NotSent(err) {
			continue
		}
		return nil, err
	}
}

// roundTrip sends r to the address, through its circuit breaker.
func (a *Address) roundTrip(base http.RoundTripper, r *http.Request) (*http.Response, error) {
	if a.pipeline == nil {
		resp, err := base.RoundTrip(r)
		return resp, ofClient(r, err)
	}
	s := sending{base: base, request: r}
	resp, err := pipeline.ExecuteValue(r.Context(), a.pipeline, s.send)
	if err != nil && errors.Is(err, registry.ErrRemoved) {
		return s.send(r.Context()) // a newer version of the file does not have the address: this request has begun before
	}
	return resp, err
}

// again returns a copy of r for another address, with the URL that the caller gave.
func again(r *http.Request, original url.URL) *http.Request {
	own := *r
	own.URL = &original
	return &own
}

// A sending is one request to one address.
type sending struct {
	base    http.RoundTripper
	request *http.Request
}

// send ignores the context of the pipeline, whose only strategy is a circuit breaker: the request has its own.
func (s *sending) send(context.Context) (*http.Response, error) {
	resp, err := s.base.RoundTrip(s.request)
	return resp, ofClient(s.request, err)
}

// ofClient returns err, or a [ClientError] if an attempt has failed because the body could not be read.
func ofClient(r *http.Request, err error) error {
	if body, ok := r.Body.(*HeldBody); ok && err != nil && body.failure() != nil {
		return &ClientError{body.failure()}
	}
	return err
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

// A choice is the order in which one attempt tries addresses.
type choice struct {
	all   []*Address
	tried []*Address  // by earlier attempts of the request: they come last
	gone  []*Address  // by this attempt
	array [2]*Address // the first array of gone
}

// next returns the address to try next, and counts the request there. It returns nil if all were tried.
func (c *choice) next() *Address {
	if len(c.gone) == len(c.all) {
		return nil
	}
	a := c.pick(func(a *Address) bool { return slices.Contains(c.tried, a) || slices.Contains(c.gone, a) })
	if a == nil {
		a = c.pick(func(a *Address) bool { return slices.Contains(c.gone, a) })
	}
	a.running.Add(1)
	c.gone = append(c.gone, a)
	return a
}

// another reports whether there is an address that this attempt has not tried.
func (c *choice) another() bool { return len(c.gone) < len(c.all) }

// pick returns the one of two random addresses with fewer requests running, or nil if all are left out.
func (c *choice) pick(leaveOut func(*Address) bool) *Address {
	var first, second *Address
	if n := len(c.all); n > 1 && len(c.tried)+len(c.gone) == 0 { // the usual case: two different ones of all
		i := rand.IntN(n)
		j := rand.IntN(n - 1)
		if j >= i {
			j++
		}
		first, second = c.all[i], c.all[j]
	} else {
		seen := 0
		for _, a := range c.all {
			if leaveOut(a) {
				continue
			}
			switch seen++; { // each pair is as likely as any other
			case first == nil:
				first = a
			case second == nil:
				second = a
			default:
				if at := rand.IntN(seen); at == 0 {
					first = a
				} else if at == 1 {
					second = a
				}
			}
		}
	}
	if second != nil && second.running.Load() < first.running.Load() {
		return second
	}
	return first
}

// An UnavailableError says that no address of an upstream can be asked: the circuits of all are open.
type UnavailableError struct {
	Upstream string
	after    time.Duration
	known    bool
}

// Error names the upstream.
func (e *UnavailableError) Error() string {
	return "upstream " + e.Upstream + ": no address is available"
}

// RetryAfter returns when the first circuit lets a request through, if that is known.
func (e *UnavailableError) RetryAfter() (time.Duration, bool) { return e.after, e.known }

// NotCalled returns true: nothing was sent.
func (e *UnavailableError) NotCalled() bool { return true }

// Retryable returns false. The client is told when to come back: requests that wait in the gateway until a circuit
// closes would all arrive together at a server that has just come back.
func (e *UnavailableError) Retryable() bool { return false }

// sooner returns e with the RetryAfter of another open circuit if that is the shorter one. e can be nil.
func (e *UnavailableError) sooner(name string, open *circuitbreaker.OpenError) *UnavailableError {
	if e == nil {
		e = &UnavailableError{Upstream: name}
	}
	if d, ok := open.RetryAfter(); ok && (!e.known || d < e.after) {
		e.after, e.known = d, true
	}
	return e
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
