package weirhttp

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/weir-go/weir/transport/weirhttp/internal/handlerio"
)

// repeatable reports whether the request may be sent more than once.
func (o *TransportOptions) repeatable(r *http.Request) bool {
	return (!handlerio.HasBody(r) || r.GetBody != nil) && o.Idempotent(r)
}

// overlappable reports whether two attempts at the request may run at the same time. If it has a body and a trailer
// they may not, because both bodies would fill the same trailer.
func overlappable(r *http.Request) bool {
	return isSafe(r.Method) && (len(r.Trailer) == 0 || !handlerio.HasBody(r))
}

// copyRequest makes the attempt's own copy of the request: strategies can run attempts at the same time, and after the
// caller has changed the request for the next use. For most requests it allocates only the map of the header.
func (a *attempt) copyRequest(ctx context.Context, r *http.Request) {
	if r.TransferEncoding != nil || r.Form != nil || r.PostForm != nil || r.MultipartForm != nil {
		a.request = *r.Clone(ctx)
		a.request.Trailer = r.Trailer // shared, because the caller fills it in while the body is read
	} else {
		a.request = *r.WithContext(ctx)
		if r.URL != nil {
			a.url = *r.URL
			a.request.URL = &a.url
		}
		a.request.Header = a.copyHeader(r.Header)
	}
	if !handlerio.HasBody(r) {
		return
	}
	if r.GetBody != nil {
		a.request.GetBody = a.exchange.getBody
	}
	if a.number > 0 {
		a.request.Body, a.needsBody = nil, true
	}
}

// copyHeader is Header.Clone without an allocation for the values, if there are at most as many as a.values holds.
func (a *attempt) copyHeader(h http.Header) http.Header {
	if h == nil {
		return nil
	}
	all := a.values[:0]
	own := make(http.Header, len(h))
	for name, values := range h {
		if values == nil { // it keeps net/http from setting the header
			own[name] = nil
			continue
		}
		from := len(all)
		all = append(all, values...)
		own[name] = all[from:len(all):len(all)] // without spare capacity, so that an Add does not overwrite the next header's
	}
	return own
}

// openBody gets the body of an attempt that is not the first. If GetBody fails, no other attempt is made.
func (a *attempt) openBody() error {
	if !a.needsBody {
		return nil
	}
	again, err := a.request.GetBody()
	if err != nil {
		return &finalError{fmt.Errorf("weirhttp: the body for attempt %d: %w", a.number+1, err)}
	}
	a.request.Body = again
	return nil
}

// getBody is the GetBody of an attempt's request, which the base can also call. The caller can reuse what its GetBody
// reads as soon as RoundTrip has returned: so getBody fails after that, and RoundTrip waits for calls under way.
func (x *exchange) getBody() (io.ReadCloser, error) {
	x.mu.Lock()
	if x.settled {
		x.mu.Unlock()
		return nil, errTooLate
	}
	x.bodies++
	get := x.request.GetBody
	x.mu.Unlock()
	defer func() {
		x.mu.Lock()
		defer x.mu.Unlock()
		if x.bodies--; x.bodies == 0 && x.noBodies != nil {
			close(x.noBodies)
		}
	}()
	return get()
}

// idempotentByDefault is the default of [TransportOptions.Idempotent].
func idempotentByDefault(r *http.Request) bool {
	switch r.Method {
	case http.MethodPut, http.MethodDelete:
		return true
	}
	if isSafe(r.Method) {
		return true
	}
	// As in net/http, the key can be present without a value, which is not sent.
	_, ok := r.Header["Idempotency-Key"]
	if !ok {
		_, ok = r.Header["X-Idempotency-Key"]
	}
	return ok
}

// isSafe reports whether the method is safe, as RFC 9110 defines it.
func isSafe(method string) bool {
	switch method {
	case "", http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace:
		return true
	default:
		return false
	}
}

// closeRequestBody closes the body as every [http.RoundTripper] must, and ignores the error as they do.
func closeRequestBody(r *http.Request) {
	if r.Body != nil {
		_ = r.Body.Close()
	}
}

// hostOf returns the host for HostFrom.
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
