package weirhttp

import (
	"bufio"
	"io"
	"net"
	"net/http"
)

// What a ResponseWriter may have besides. Handlers look for these with type
// assertions and take another way where one is missing, so a wrapper must have
// them exactly where the inner one has.
type (
	flusher    struct{ w *response }
	hijacker   struct{ w *response }
	readerFrom struct{ w *response }
)

func (f flusher) Flush() { _ = f.w.FlushError() } // a Flusher cannot say so

func (h hijacker) Hijack() (net.Conn, *bufio.ReadWriter, error) { return h.w.hijack() }

func (r readerFrom) ReadFrom(src io.Reader) (int64, error) { return r.w.readFrom(src) }

// own is a response of ours in any of its kinds.
type own = *response

const (
	hasFlush = 1 << iota
	hasHijack
	hasReadFrom
	hasPush
)

// writer returns the response with the methods of the inner one.
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
	p, ok := w.inner.(http.Pusher)
	if ok {
		has |= hasPush
	}
	return w.kind(has, p)
}

func (w *response) kind(has int, p http.Pusher) http.ResponseWriter { //nolint:gocyclo // it is a table
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
	return w.kindThatPushes(has&^hasPush, p)
}

func (w *response) kindThatPushes(has int, p http.Pusher) http.ResponseWriter {
	if p == nil {
		return w
	}
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
	case hasHijack | hasReadFrom:
		return struct {
			own
			hijacker
			readerFrom
			http.Pusher
		}{w, h, r, p}
	default:
		return struct {
			own
			flusher
			hijacker
			readerFrom
			http.Pusher
		}{w, f, h, r, p}
	}
}
