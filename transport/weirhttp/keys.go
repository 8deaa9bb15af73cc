package weirhttp

import (
	"context"
	"net/http"

	"github.com/weir-go/weir/transport/internal/admission"
)

// A Key returns the key of a request: requests with the same key share a limiter. It is called for every request, and
// must be safe for concurrent use.
//
// The keys of this package are never longer than 128 bytes, whatever a client sends: a longer one is replaced by its
// digest. The number of different keys is bounded elsewhere; see [PerKey].
type Key func(r *http.Request) string

// AmbiguousKey is what a Key returns for a request in which it finds several values where there must be one. Its policy
// answers 400, also with FailOpen, and asks no limiter. If the Key counted one of the values and the handler used another,
// a client would get a new limiter with each value that it makes up. [Composite] returns it if one of its keys does.
const AmbiguousKey = admission.AmbiguousKey

// Header returns the Key that is the value of a request header, such as X-Api-Key. All requests without the header have
// the key "", and those with several lines of it [AmbiguousKey].
//
// Use a header only if a proxy or middleware in front has checked it. Otherwise a client can send a new value with each
// request, and get a new limiter each time.
func Header(name string) Key {
	canonical := http.CanonicalHeaderKey(name)
	if canonical == "Host" { // net/http removes it from the header
		return func(r *http.Request) string { return admission.BoundedKey(r.Host) }
	}
	return func(r *http.Request) string { return admission.KeyOf(r.Header[canonical]) }
}

// Route returns the Key that is the pattern of the [http.ServeMux] that the request matched, such as "GET
// /orders/{id}": all orders share a limiter, and a client cannot make up keys by making up paths. All requests that
// matched no pattern have the key "".
//
// The mux sets the pattern, so wrap the handlers that are registered with it, not the mux.
func Route() Key {
	return func(r *http.Request) string { return admission.BoundedKey(r.Pattern) }
}

// Subject returns the Key that f finds in the request, such as the user that authentication has put into its context,
// or the tenant of a verified token.
func Subject(f func(r *http.Request) string) Key {
	return func(r *http.Request) string { return admission.BoundedKey(f(r)) }
}

// Composite returns the Key of all keys together: requests share a limiter if they agree in every one. The key has the
// length of each part before the part, so that different parts never make the same key.
func Composite(keys ...Key) Key { return admission.Composite(keys) }

// RequestFrom returns the request that a context belongs to, or nil if there is none. Limiters in a pipeline find their
// key with it:
//
//	perTenant := func(ctx context.Context) string { return weirhttp.RequestFrom(ctx).Header.Get("X-Tenant") }
//	ratelimit.NewPartitioned(buckets, perTenant, nil)
//
// On a server, in the pipeline of a [ByPipeline] or of [Through], and in a handler inside of [Limits] or Through, it
// is the request as the innermost middleware of this package got it. Handlers share its header and its body, so a key
// function must only read it, and not its body.
//
// On a client, in the pipeline of a [Transport], it is a copy of the request as the caller gave it to the Transport, with
// a header and a URL of its own and without the body. All attempts at the request get the same copy, also attempts that
// run at the same time or after the caller has its answer. It must not be changed. A pipeline of a Transport in a handler
// gets the request that the Transport sends, not the one that the handler answers.
func RequestFrom(ctx context.Context) *http.Request {
	r, _ := ctx.Value(requestKey{}).(*http.Request)
	return r
}

// requestKey asks a context for the request of the nearest call, handlerRun or roundTrip.
type requestKey struct{}
