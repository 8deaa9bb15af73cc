package upstream

import (
	"errors"
	"io"
	"net/http"
	"sync/atomic"
)

// A HeldBody is the body of a request of which perhaps nothing was sent. [http.Transport] closes the body also if it
// could not connect, and the next address must still be able to read it. So Close does nothing before the first Read.
type HeldBody struct {
	io.ReadCloser
	read   atomic.Bool
	closed atomic.Bool
	err    atomic.Pointer[error] // of the first Read that has failed, and not because of Close
}

// HoldBody replaces the body of r. It returns nil if there is none.
func HoldBody(r *http.Request) *HeldBody {
	if r.Body == nil || r.Body == http.NoBody {
		return nil
	}
	if b, ok := r.Body.(*HeldBody); ok {
		return b
	}
	b := &HeldBody{ReadCloser: r.Body}
	r.Body = b
	return b
}

// Read implements [io.Reader].
func (b *HeldBody) Read(p []byte) (int, error) {
	if !b.read.Load() {
		b.read.Store(true)
	}
	n, err := b.ReadCloser.Read(p)
	if err != nil && !errors.Is(err, io.EOF) && !b.closed.Load() {
		b.err.CompareAndSwap(nil, &err)
	}
	return n, err
}

// Close implements [io.Closer].
func (b *HeldBody) Close() error {
	if !b.read.Load() {
		return nil
	}
	b.closed.Store(true)
	return b.ReadCloser.Close()
}

// Unread reports whether nothing of the body was read. A nil body is unread.
func (b *HeldBody) Unread() bool { return b == nil || !b.read.Load() }

// again returns the body for another connection. net/http asks for it if a connection was closed before anything of the request
// was written.
func (b *HeldBody) again() (io.ReadCloser, error) {
	if !b.Unread() {
		return nil, errRead
	}
	return b, nil
}

var errRead = errors.New("the connection broke off; the body was read in part, and is not sent again")

// failure returns why the body could not be read, or nil.
func (b *HeldBody) failure() error {
	if b == nil {
		return nil
	}
	if err := b.err.Load(); err != nil {
		return *err
	}
	return nil
}
