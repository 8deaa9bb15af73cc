package upstream

import (
	"errors"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
)

// maxKept is how much [http.Transport] can read of a body before it writes to the connection: its buffer.
const maxKept = 4 << 10

// A HeldBody is the body of a request of which perhaps nothing was sent. [http.Transport] reads the beginning of a body before it
// writes anything, and closes the body also if it could not connect, or if the connection turns out to be closed. The next one must
// still get all of it, so a HeldBody keeps the beginning, and Close does nothing before more was read.
type HeldBody struct {
	io.ReadCloser
	closed atomic.Bool
	err    atomic.Pointer[error] // of the first Read that has failed, and not because of Close

	mu   sync.Mutex
	kept []byte // the beginning
	at   int    // how much of kept the present attempt has read
	over bool   // more was read than can be kept
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
	if n := b.readKept(p); n > 0 {
		return n, nil
	}
	n, err := b.ReadCloser.Read(p)
	b.keep(p[:n])
	if err != nil && !errors.Is(err, io.EOF) && !b.closed.Load() {
		b.err.CompareAndSwap(nil, &err)
	}
	return n, err
}

func (b *HeldBody) readKept(p []byte) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := copy(p, b.kept[b.at:])
	b.at += n
	return n
}

func (b *HeldBody) keep(p []byte) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.over || len(b.kept)+len(p) > maxKept {
		b.over, b.kept = true, nil
	} else {
		b.kept = append(b.kept, p...)
	}
	b.at = len(b.kept)
}

// Close implements [io.Closer].
func (b *HeldBody) Close() error {
	b.mu.Lock()
	over := b.over
	b.mu.Unlock()
	if !over {
		return nil
	}
	b.closed.Store(true)
	return b.ReadCloser.Close()
}

// Unread reports whether nothing of the body was read. A nil body is unread.
func (b *HeldBody) Unread() bool {
	if b == nil {
		return true
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return !b.over && len(b.kept) == 0
}

// rewind makes the next Read begin at the beginning, and reports whether that is possible. No other Read may run: net/http waits for
// its own before it returns or asks for the body again. A nil body has nothing to read.
func (b *HeldBody) rewind() bool {
	if b == nil {
		return true
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.at = 0
	return !b.over
}

// again returns the body for another connection. net/http asks for it if a connection was closed before anything of the request
// was written.
func (b *HeldBody) again() (io.ReadCloser, error) {
	if !b.rewind() {
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
