package weirhttp

import (
	"net/http"
	"strings"

	"github.com/weir-go/weir/transport/internal/admission"
	"github.com/weir-go/weir/transport/weirhttp/internal/handlerio"
)

// repeatable reports whether the request may be sent more than once.
func (o *TransportOptions) repeatable(r *http.Request) bool {
	return (!handlerio.HasBody(r) || r.GetBody != nil) && o.Idempotent(r)
}

// overlappable reports whether two attempts at the request may run at the same time. If it has a body and a trailer,
// overlappable returns false, because both bodies would fill the same trailer.
func overlappable(r *http.Request) bool {
	return isSafe(r.Method) && (len(r.Trailer) == 0 || !handlerio.HasBody(r))
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

// closeRequestBody closes the body, as every [http.RoundTripper] must. Like [http.Transport], it ignores the error.
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
	return admission.BoundedKey(host)
}
