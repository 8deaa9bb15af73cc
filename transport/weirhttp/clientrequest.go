package weirhttp

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
)

// mayRepeatRequest tells whether the request may be sent more than once.
func (o *TransportOptions) mayRepeatRequest(r *http.Request) bool {
	return (noBody(r) || r.GetBody != nil) && o.Idempotent(r)
}

func noBody(r *http.Request) bool { return r.Body == nil || r.Body == http.NoBody }

// requestFor returns the request of an attempt: the attempt's own, so that what one
// does to its header does not reach the other. The caller's is never changed. All the
// rest is shared, and a transport must not change it; of the trailer that is even
// needed, the caller fills it in while the body is read.
func (x *exchange) requestFor(ctx context.Context, number int) (*http.Request, error) {
	r := x.request.WithContext(ctx)
	r.Header = copyHeader(x.request.Header)
	if number == 0 || noBody(x.request) {
		return r, nil
	}
	again, err := x.request.GetBody()
	if err != nil {
		return nil, fmt.Errorf("weirhttp: the body for attempt %d: %w", number+1, err)
	}
	r.Body = again
	return r, nil
}

// copyHeader is Header.Clone without a copy of the values: a Set replaces them, and
// an Add finds no room behind.
func copyHeader(h http.Header) http.Header {
	if h == nil {
		return nil
	}
	own := make(http.Header, len(h))
	for name, values := range h {
		own[name] = slices.Clip(values)
	}
	return own
}

func idempotentByDefault(r *http.Request) bool {
	switch r.Method {
	case http.MethodPut, http.MethodDelete:
		return true
	}
	if isSafe(r.Method) {
		return true
	}
	// As net/http does: also one that is there without a value, which is not sent.
	_, ok := r.Header["Idempotency-Key"]
	if !ok {
		_, ok = r.Header["X-Idempotency-Key"]
	}
	return ok
}

// isSafe tells whether two of the same request at the same time do no harm.
func isSafe(method string) bool {
	switch method {
	case "", http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace:
		return true
	default:
		return false
	}
}

func closeRequestBody(r *http.Request) {
	if r.Body != nil {
		_ = r.Body.Close() // a RoundTripper closes it, and nobody hears how that went
	}
}

func hostOf(r *http.Request) string {
	if r.URL == nil {
		return ""
	}
	host := strings.ToLower(r.URL.Host)
	switch r.URL.Scheme {
	case "http":
		host = strings.TrimSuffix(host, ":80")
	case "https":
		host = strings.TrimSuffix(host, ":443")
	}
	return bounded(host)
}
