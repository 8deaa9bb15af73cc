package weirhttp

import (
	"bufio"
	"io"
	"net"
	"net/http"
)

// The optional methods of a ResponseWriter. Handlers look for them with type assertions and do something else if one is
// missing, so a wrapper must have exactly those that the inner one has. A method set is fixed when the program is
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

// own embeds a response as an unexported field.
type own = *response

const (
	hasFlush = 1 << iota
	hasHijack
	hasReadFrom
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

func (w *response) plain(has int) http.ResponseWriter {
	f, h, r := flusher{w}, hijacker{w}, readerFrom{w}
	switch has {
	case hasFlush:
		return struct {
			own
			flusher
		}{w, f}
	case hasHijack:
		return struct {
			own
			hijacker
		}{w, h}
	case hasFlush | hasHijack:
		return struct {
			own
			flusher
			hijacker
		}{w, f, h}
	case hasReadFrom:
		return struct {
			own
			readerFrom
		}{w, r}
	case hasFlush | hasReadFrom:
		return struct {
			own
			flusher
			readerFrom
		}{w, f, r}
	case hasHijack | hasReadFrom:
		return struct {
			own
			hijacker
			readerFrom
		}{w, h, r}
	case hasFlush | hasHijack | hasReadFrom:
		return struct {
			own
			flusher
			hijacker
			readerFrom
		}{w, f, h, r}
	}
	return w
}

func (w *response) pushing(has int, p http.Pusher) http.ResponseWriter {
	f, h, r := flusher{w}, hijacker{w}, readerFrom{w}
	switch has {
	case 0:
		return struct {
			own
			http.Pusher
		}{w, p}
	case hasFlush:
		return struct {
			own
			flusher
			http.Pusher
		}{w, f, p}
	case hasHijack:
		return struct {
			own
			hijacker
			http.Pusher
		}{w, h, p}
	case hasFlush | hasHijack:
		return struct {
			own
			flusher
			hijacker
			http.Pusher
		}{w, f, h, p}
	case hasReadFrom:
		return struct {
			own
			readerFrom
			http.Pusher
		}{w, r, p}
	case hasFlush | hasReadFrom:
		return struct {
			own
			flusher
			readerFrom
			http.Pusher
		}{w, f, r, p}
	case hasHijack | hasReadFrom:
		return struct {
			own
			hijacker
			readerFrom
			http.Pusher
		}{w, h, r, p}
	case hasFlush | hasHijack | hasReadFrom:
		return struct {
			own
			flusher
			hijacker
			readerFrom
			http.Pusher
		}{w, f, h, r, p}
	}
	return w
}

func (w *response) notifying(has int, n http.CloseNotifier) http.ResponseWriter { //nolint:staticcheck // CloseNotifier
	f, h, r := flusher{w}, hijacker{w}, readerFrom{w}
	switch has {
	case 0:
		return struct {
			own
			http.CloseNotifier
		}{w, n}
	case hasFlush:
		return struct {
			own
			flusher
			http.CloseNotifier
		}{w, f, n}
	case hasHijack:
		return struct {
			own
			hijacker
			http.CloseNotifier
		}{w, h, n}
	case hasFlush | hasHijack:
		return struct {
			own
			flusher
			hijacker
			http.CloseNotifier
		}{w, f, h, n}
	case hasReadFrom:
		return struct {
			own
			readerFrom
			http.CloseNotifier
		}{w, r, n}
	case hasFlush | hasReadFrom:
		return struct {
			own
			flusher
			readerFrom
			http.CloseNotifier
		}{w, f, r, n}
	case hasHijack | hasReadFrom:
		return struct {
			own
			hijacker
			readerFrom
			http.CloseNotifier
		}{w, h, r, n}
	case hasFlush | hasHijack | hasReadFrom:
		return struct {
			own
			flusher
			hijacker
			readerFrom
			http.CloseNotifier
		}{w, f, h, r, n}
	}
	return w
}

func (w *response) pushingAndNotifying(has int, p http.Pusher, n http.CloseNotifier) http.ResponseWriter { //nolint:staticcheck // CloseNotifier
	f, h, r := flusher{w}, hijacker{w}, readerFrom{w}
	switch has {
	case 0:
		return struct {
			own
			http.Pusher
			http.CloseNotifier
		}{w, p, n}
	case hasFlush:
		return struct {
			own
			flusher
			http.Pusher
			http.CloseNotifier
		}{w, f, p, n}
	case hasHijack:
		return struct {
			own
			hijacker
			http.Pusher
			http.CloseNotifier
		}{w, h, p, n}
	case hasFlush | hasHijack:
		return struct {
			own
			flusher
			hijacker
			http.Pusher
			http.CloseNotifier
		}{w, f, h, p, n}
	case hasReadFrom:
		return struct {
			own
			readerFrom
			http.Pusher
			http.CloseNotifier
		}{w, r, p, n}
	case hasFlush | hasReadFrom:
		return struct {
			own
			flusher
			readerFrom
			http.Pusher
			http.CloseNotifier
		}{w, f, r, p, n}
	case hasHijack | hasReadFrom:
		return struct {
			own
			hijacker
			readerFrom
			http.Pusher
			http.CloseNotifier
		}{w, h, r, p, n}
	case hasFlush | hasHijack | hasReadFrom:
		return struct {
			own
			flusher
			hijacker
			readerFrom
			http.Pusher
			http.CloseNotifier
		}{w, f, h, r, p, n}
	}
	return w
}
