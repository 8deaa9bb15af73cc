package weirhttp

import (
	"bufio"
	"io"
	"net"
	"net/http"
)

// The optional methods of a ResponseWriter. Handlers look for them with type assertions and do something else if one is
// missing, so a wrapper must have exactly the methods that the inner one has. A method set is fixed when the program is
// compiled, hence a struct for each combination below.
type (
	flusher    struct{ w *response }
	hijacker   struct{ w *response }
	readerFrom struct{ w *response }
)

func (f flusher) Flush()            { _ = f.w.flush() } // Flush has no result
func (f flusher) FlushError() error { return f.w.flush() }

func (h hijacker) Hijack() (net.Conn, *bufio.ReadWriter, error) { return h.w.hijack() }

func (r readerFrom) ReadFrom(src io.Reader) (int64, error) { return r.w.readFrom(src) }

func canFlush(w http.ResponseWriter) bool {
	switch w.(type) {
	case interface{ FlushError() error }, http.Flusher:
		return true
	}
	return false
}

func canHijack(w http.ResponseWriter) bool {
	_, ok := w.(http.Hijacker)
	return ok
}

// onlyInside reports whether a ResponseWriter that w wraps has something that w itself has not. Only an
// [http.ResponseController] finds that.
func onlyInside(w http.ResponseWriter, has func(http.ResponseWriter) bool) bool {
	if has(w) {
		return false
	}
	for {
		u, ok := w.(interface{ Unwrap() http.ResponseWriter })
		if !ok {
			return false
		}
		if w = u.Unwrap(); has(w) {
			return true
		}
	}
}

// Unwrap is for [http.ResponseController]. If the inner one hides a Flush or a Hijack further inside, the controller
// would call that without the response knowing, so Unwrap returns a step between that records it.
func (w *response) Unwrap() http.ResponseWriter {
	flushes, hijacks := onlyInside(w.inner, canFlush), onlyInside(w.inner, canHijack)
	b := below{w}
	switch {
	case flushes && hijacks:
		return struct {
			below
			flusher
			hijacker
		}{b, flusher{w}, hijacker{w}}
	case flushes:
		return struct {
			below
			flusher
		}{b, flusher{w}}
	case hijacks:
		return struct {
			below
			hijacker
		}{b, hijacker{w}}
	}
	return w.inner
}

// below is the step between a response and the inner one; see Unwrap.
type below struct{ w *response }

func (b below) asResponse() *response       { return b.w }
func (b below) Header() http.Header         { return b.w.Header() }
func (b below) Write(p []byte) (int, error) { return b.w.Write(p) }
func (b below) WriteHeader(status int)      { b.w.WriteHeader(status) }
func (b below) Unwrap() http.ResponseWriter { return b.w.inner }

const (
	hasFlush = 1 << iota
	hasHijack
	hasReadFrom
)

// The kinds of response by Flush (F), Hijack (H) and ReadFrom (R).
type (
	responseF struct {
		*response
		flusher
	}
	responseH struct {
		*response
		hijacker
	}
	responseFH struct {
		*response
		flusher
		hijacker
	}
	responseR struct {
		*response
		readerFrom
	}
	responseFR struct {
		*response
		flusher
		readerFrom
	}
	responseHR struct {
		*response
		hijacker
		readerFrom
	}
	responseFHR struct {
		*response
		flusher
		hijacker
		readerFrom
	}
)

// writer returns the response with the optional methods of the inner one.
func (w *response) writer() http.ResponseWriter {
	has := 0
	if canFlush(w.inner) {
		has |= hasFlush
	}
	if canHijack(w.inner) {
		has |= hasHijack
	}
	if _, ok := w.inner.(io.ReaderFrom); ok {
		has |= hasReadFrom
	}
	p, pushes := w.inner.(http.Pusher)
	n, notifies := w.inner.(http.CloseNotifier) //nolint:staticcheck // deprecated, but frameworks such as gin require it
	switch {
	case pushes && notifies:
		return w.pushingAndNotifying(has, p, n)
	case pushes:
		return w.pushing(has, p)
	case notifies:
		return w.notifying(has, n)
	default:
		return w.plain(has)
	}
}

// plain returns the response with those methods.
func (w *response) plain(has int) http.ResponseWriter {
	switch has {
	case hasFlush:
		return responseF{w, flusher{w}}
	case hasHijack:
		return responseH{w, hijacker{w}}
	case hasFlush | hasHijack:
		return responseFH{w, flusher{w}, hijacker{w}}
	case hasReadFrom:
		return responseR{w, readerFrom{w}}
	case hasFlush | hasReadFrom:
		return responseFR{w, flusher{w}, readerFrom{w}}
	case hasHijack | hasReadFrom:
		return responseHR{w, hijacker{w}, readerFrom{w}}
	case hasFlush | hasHijack | hasReadFrom:
		return responseFHR{w, flusher{w}, hijacker{w}, readerFrom{w}}
	default:
		return w
	}
}

// pushing is plain with Push.
func (w *response) pushing(has int, p http.Pusher) http.ResponseWriter {
	switch has {
	case hasFlush:
		return struct {
			responseF
			http.Pusher
		}{responseF{w, flusher{w}}, p}
	case hasHijack:
		return struct {
			responseH
			http.Pusher
		}{responseH{w, hijacker{w}}, p}
	case hasFlush | hasHijack:
		return struct {
			responseFH
			http.Pusher
		}{responseFH{w, flusher{w}, hijacker{w}}, p}
	case hasReadFrom:
		return struct {
			responseR
			http.Pusher
		}{responseR{w, readerFrom{w}}, p}
	case hasFlush | hasReadFrom:
		return struct {
			responseFR
			http.Pusher
		}{responseFR{w, flusher{w}, readerFrom{w}}, p}
	case hasHijack | hasReadFrom:
		return struct {
			responseHR
			http.Pusher
		}{responseHR{w, hijacker{w}, readerFrom{w}}, p}
	case hasFlush | hasHijack | hasReadFrom:
		return struct {
			responseFHR
			http.Pusher
		}{responseFHR{w, flusher{w}, hijacker{w}, readerFrom{w}}, p}
	default:
		return struct {
			*response
			http.Pusher
		}{w, p}
	}
}

// notifying is plain with CloseNotify.
func (w *response) notifying(has int, n http.CloseNotifier) http.ResponseWriter { //nolint:staticcheck // CloseNotifier
	switch has {
	case hasFlush:
		return struct {
			responseF
			http.CloseNotifier
		}{responseF{w, flusher{w}}, n}
	case hasHijack:
		return struct {
			responseH
			http.CloseNotifier
		}{responseH{w, hijacker{w}}, n}
	case hasFlush | hasHijack:
		return struct {
			responseFH
			http.CloseNotifier
		}{responseFH{w, flusher{w}, hijacker{w}}, n}
	case hasReadFrom:
		return struct {
			responseR
			http.CloseNotifier
		}{responseR{w, readerFrom{w}}, n}
	case hasFlush | hasReadFrom:
		return struct {
			responseFR
			http.CloseNotifier
		}{responseFR{w, flusher{w}, readerFrom{w}}, n}
	case hasHijack | hasReadFrom:
		return struct {
			responseHR
			http.CloseNotifier
		}{responseHR{w, hijacker{w}, readerFrom{w}}, n}
	case hasFlush | hasHijack | hasReadFrom:
		return struct {
			responseFHR
			http.CloseNotifier
		}{responseFHR{w, flusher{w}, hijacker{w}, readerFrom{w}}, n}
	default:
		return struct {
			*response
			http.CloseNotifier
		}{w, n}
	}
}

// pushingAndNotifying is plain with Push and CloseNotify.
func (w *response) pushingAndNotifying(has int, p http.Pusher, n http.CloseNotifier) http.ResponseWriter { //nolint:staticcheck // CloseNotifier
	switch has {
	case hasFlush:
		return struct {
			responseF
			http.Pusher
			http.CloseNotifier
		}{responseF{w, flusher{w}}, p, n}
	case hasHijack:
		return struct {
			responseH
			http.Pusher
			http.CloseNotifier
		}{responseH{w, hijacker{w}}, p, n}
	case hasFlush | hasHijack:
		return struct {
			responseFH
			http.Pusher
			http.CloseNotifier
		}{responseFH{w, flusher{w}, hijacker{w}}, p, n}
	case hasReadFrom:
		return struct {
			responseR
			http.Pusher
			http.CloseNotifier
		}{responseR{w, readerFrom{w}}, p, n}
	case hasFlush | hasReadFrom:
		return struct {
			responseFR
			http.Pusher
			http.CloseNotifier
		}{responseFR{w, flusher{w}, readerFrom{w}}, p, n}
	case hasHijack | hasReadFrom:
		return struct {
			responseHR
			http.Pusher
			http.CloseNotifier
		}{responseHR{w, hijacker{w}, readerFrom{w}}, p, n}
	case hasFlush | hasHijack | hasReadFrom:
		return struct {
			responseFHR
			http.Pusher
			http.CloseNotifier
		}{responseFHR{w, flusher{w}, hijacker{w}, readerFrom{w}}, p, n}
	default:
		return struct {
			*response
			http.Pusher
			http.CloseNotifier
		}{w, p, n}
	}
}
