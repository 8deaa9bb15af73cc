package weirhttp

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
)

// mayRepeatRequest reports whether the request may be sent more than once.
func (o *TransportOptions) mayRepeatRequest(r *http.Request) bool {
	return (noBody(r) || r.GetBody != nil) && o.Idempotent(r)
}

func noBody(r *http.Request) bool { return r.Body == nil || r.Body == http.NoBody }

// mayRunTwice reports whether two attempts at the request may be under way at the same
// time. Those of one with a trailer and a body may not: both bodies fill the same trailer.
func mayRunTwice(r *http.Request) bool {
	return isSafe(r.Method) && (len(r.Trailer) == 0 || noBody(r))
}

// copyRequest makes the attempt's request: its own, because strategies can run attempts at
// the same time and after the caller has changed the request for the next one. It allocates
// the header's map and nothing else for the requests that most callers make.
func (a *attempt) copyRequest(ctx context.Context, r *http.Request) {
	if r.TransferEncoding != nil || r.Form != nil || r.PostForm != nil || r.MultipartForm != nil {
		a.request = *r.Clone(ctx)
		a.request.Trailer = r.Trailer // the caller fills it in while the body is read
	} else {
		a.request = *r.WithContext(ctx)
		if r.URL != nil {
			a.url = *r.URL
			a.request.URL = &a.url
		}
		a.request.Header = a.copyHeader(r.Header)
	}
	if noBody(r) {
		return
	}
	if r.GetBody != nil {
		a.request.GetBody = a.exchange.getBody
	}
	if a.number > 0 {
		a.request.Body, a.needsBody = nil, true
	}
}

// copyHeader is Header.Clone that needs no slice for as many values as the attempt has
// room for.
func (a *attempt) copyHeader(h http.Header) http.Header {
	if h == nil {
		return nil
	}
	all := a.values[:0]
	own := make(http.Header, len(h))
	for name, values := range h {
		if values == nil { // net/http sends no header of its own by this name then
			own[name] = nil
			continue
		}
		from := len(all)
		all = append(all, values...)
		own[name] = all[from:len(all):len(all)] // an Add must not write into the next one's
	}
	return own
}

// openBody gets the body of an attempt that is not the first.
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

// getBody is the GetBody of an attempt's request, which the base can call, too. It does
// not call the caller's when the caller has its answer, and RoundTrip does not return
// meanwhile: what GetBody reads may be reused then.
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

// isSafe reports whether two of the same request at the same time do no harm.
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
