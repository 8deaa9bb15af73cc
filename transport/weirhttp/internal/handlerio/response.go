// Package handlerio has the request and the ResponseWriter of weirhttp's handlers. The ResponseWriter records the status of the
// answer. If the time of a handler is limited, reading the body of the request and writing the response fail when it is over, and
// so do calls that wait for the client at that moment.
//
//   - response.go: the status of the answer, for weirhttp.
//   - writer.go: the ResponseWriter of the handler.
//   - methods.go: the optional methods of that ResponseWriter.
//   - request.go: the copy of the request that handlers get.
//   - clientcontext.go: how the time of a handler is limited.
//   - body.go and cutoff.go: how a Read or a Write that waits for the client is woken.
package handlerio

import (
	"net/http"
	"slices"
)

// A Response is the response of a handler. Its Writer is for the handler, and its other methods are for weirhttp.
type Response struct {
	w      writer
	header http.Header // as it was before the handler
}

// NewResponse returns a Response that writes to w, for a handler of r. If r is nil, the handler's time cannot be
// limited, and the header cannot be restored.
func NewResponse(w http.ResponseWriter, r *http.Request) *Response {
	own := new(Response)
	own.Observe(w, r)
	if h := w.Header(); r != nil && len(h) > 0 {
		own.header = h.Clone()
	}
	return own
}

// Observe is NewResponse for a zero Response whose header need not be restored.
func (r *Response) Observe(w http.ResponseWriter, request *http.Request) {
	r.w.inner, r.w.request = w, request
}

// RestoreHeader restores the header as it was before the handler ran, so that another answer does not get the handler's
// fields. It can be called again.
func (r *Response) RestoreHeader() {
	h := r.w.Header()
	clear(h)
	for name, lines := range r.header {
		h[name] = slices.Clone(lines)
	}
}

// Writer returns the ResponseWriter for the handler. It has Flush and Hijack if the inner one has them, and
// [http.ResponseController] works through it.
func (r *Response) Writer() http.ResponseWriter { return r.w.withMethods() }

// Begun reports whether the handler has sent a status or a part of the body, or has hijacked the connection.
func (r *Response) Begun() bool { return r.w.status != 0 }

// Status returns the effective status of the response; see [SetEffectiveStatus]. It is 0 if the response has not begun.
func (r *Response) Status() int {
	if r.Begun() && r.w.effective != 0 {
		return r.w.effective
	}
	return r.w.status
}

// Hijacked reports whether the handler has taken over the connection.
func (r *Response) Hijacked() bool { return r.w.hijacked }

// Rejected reports whether a limiter gave the answer, not the handler; see [MarkRejected].
func (r *Response) Rejected() bool { return r.w.rejected }

// MarkRejected marks the response that w belongs to, and those further out, as the answer of a limiter.
func MarkRejected(w http.ResponseWriter) {
	for own := enclosing(w); own != nil; own = enclosing(own.inner) {
		own.rejected = true
	}
}

// SetEffectiveStatus makes status the Status of the response that w belongs to, and of those further out. It is for an answer of
// gRPC, which is always sent with 200.
func SetEffectiveStatus(w http.ResponseWriter, status int) {
	for own := enclosing(w); own != nil; own = enclosing(own.inner) {
		own.effective = status
	}
}

// enclosing returns the writer that w is or wraps, or nil.
func enclosing(w http.ResponseWriter) *writer {
	if own, ok := find[interface{ asWriter() *writer }](w); ok {
		return own.asWriter()
	}
	return nil
}
