package handlerio

import (
	"bufio"
	"net"
	"net/http"
)

// withMethods returns the writer with Flush and Hijack if the inner one, or one that it wraps, has them: handlers look for
// them with type assertions and do something else if one is missing. A method set is fixed when the program is compiled,
// hence a type for each combination. All of them are one pointer, so that withMethods allocates nothing.
//
// The other optional methods are those of every writer. Without the inner one's, ReadFrom copies with Write, Push returns
// [http.ErrNotSupported], as over HTTP/1, and the channel of CloseNotify receives nothing.
func (w *writer) withMethods() http.ResponseWriter {
	_, flushes := find[http.Flusher](w.inner)
	if !flushes {
		_, flushes = find[interface{ FlushError() error }](w.inner)
	}
	_, hijacks := find[http.Hijacker](w.inner)
	switch {
	case flushes && hijacks:
		return withFlushHijack{withFlush{w}}
	case flushes:
		return withFlush{w}
	case hijacks:
		return withHijack{w}
	default:
		return w
	}
}

// find returns the first ResponseWriter, of w and the ones that w wraps, with the methods of T, as an [http.ResponseController] does.
func find[T any](w http.ResponseWriter) (found T, ok bool) {
	for {
		if found, ok = w.(T); ok {
			return found, true
		}
		u, ok := w.(interface{ Unwrap() http.ResponseWriter })
		if !ok {
			return found, false
		}
		w = u.Unwrap()
	}
}

type (
	withFlush       struct{ *writer }
	withHijack      struct{ *writer }
	withFlushHijack struct{ withFlush }
)

func (w withFlush) Flush()            { _ = w.flush() } // Flush has no result
func (w withFlush) FlushError() error { return w.flush() }

func (w withHijack) Hijack() (net.Conn, *bufio.ReadWriter, error)      { return w.hijack() }
func (w withFlushHijack) Hijack() (net.Conn, *bufio.ReadWriter, error) { return w.hijack() }

// Unwrap is for [http.ResponseController].
func (w *writer) Unwrap() http.ResponseWriter { return w.inner }

// Push implements [http.Pusher].
func (w *writer) Push(target string, o *http.PushOptions) error {
	if p, ok := w.inner.(http.Pusher); ok {
		return p.Push(target, o)
	}
	return http.ErrNotSupported
}

// CloseNotify is deprecated, but frameworks such as gin require it.
func (w *writer) CloseNotify() <-chan bool {
	if c, ok := w.inner.(http.CloseNotifier); ok { //nolint:staticcheck // see above
		return c.CloseNotify()
	}
	return nil
}
