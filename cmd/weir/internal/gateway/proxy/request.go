package proxy

import (
	"context"
	"io"
	"net/http"
	"net/url"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir/cmd/weir/internal/gateway/upstream"
)

// A request is what the gateway knows of one request. It is also the context of that request, so that routes, policies
// and attempts find it without another allocation.
type request struct {
	context.Context
	exchange upstream.Exchange

	client string        // the address of the client, as the trusted proxies tell it
	began  time.Time     // when the header of the request was read
	table  *Table        // the version that the request runs on; nil before the pipeline has chosen it
	route  *route        // nil: no route matches
	routed *http.Request // as the mux has matched it, with the values of the path; nil: no route matches
	sent   *url.URL      // what the client has asked for, which can differ from what the routes match; see canonical
	host   string        // likewise
	trust  bool          // the peer is a trusted proxy

	looking bool // the request is only looked up; see [Handler.Check]

	decisions decisions
	answered  http.Header // of the answer, as the policies have left it
	fault     error       // why the gateway answered, and not the upstream
	switched  bool        // the upstream has switched protocols
}

type requestKey struct{}

// Value returns the request itself for requestKey, and its exchange for [upstream.Key].
func (x *request) Value(key any) any {
	switch key.(type) {
	case requestKey:
		return x
	case upstream.Key:
		return &x.exchange
	}
	return x.Context.Value(key)
}

// String returns only what never changes: fmt would read all fields, and race with attempts.
func (x *request) String() string { return "gateway.request" }

// requestOf returns the request that the context belongs to, or nil.
func requestOf(ctx context.Context) *request {
	x, _ := ctx.Value(requestKey{}).(*request)
	return x
}

// A response is a ResponseWriter that knows what was answered, for the access log.
type response struct {
	http.ResponseWriter
	status int // 0: the answer has not begun
	bytes  int64
	body   *duplexBody  // of the request, if the answer can begin before the client has sent it
	paced  *pacedWriter // can be nil
}

// duplex lets the answer begin before the body of the request has been read, if the length of the body is not known.
// Otherwise net/http would read what is left of it first, and a client that waits for the answer before it sends the rest
// would wait forever. Over HTTP/2 nothing is needed.
func (w *response) duplex(r *http.Request) {
	if r.ContentLength >= 0 || r.ProtoMajor != 1 || http.NewResponseController(w.ResponseWriter).EnableFullDuplex() != nil {
		return
	}
	w.body = &duplexBody{ReadCloser: r.Body}
	r.Body = w.body
}

// begin records the status. If the body of the request may be left unread, or cannot be read, the connection ends with
// the answer: nothing of the body must be taken for a request.
func (w *response) begin(status int) {
	if w.status != 0 || status < 200 && status != http.StatusSwitchingProtocols {
		return
	}
	w.status = status
	if w.body != nil && !w.body.complete.Load() && status != http.StatusSwitchingProtocols {
		w.Header().Set("Connection", "close")
	}
}

// A duplexBody knows whether it was read to its end.
type duplexBody struct {
	io.ReadCloser
	complete atomic.Bool
}

func (b *duplexBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err == io.EOF {
		b.complete.Store(true)
	}
	return n, err
}

func (w *response) WriteHeader(status int) {
	w.begin(status)
	w.ResponseWriter.WriteHeader(status)
}

func (w *response) Write(p []byte) (int, error) {
	w.begin(http.StatusOK)
	w.paced.begin()
	n, err := w.ResponseWriter.Write(p)
	w.paced.end()
	w.bytes += int64(n)
	return n, err
}

// Flush is here because handlers look for [http.Flusher], and Unwrap is for [http.ResponseController].
func (w *response) Flush() {
	w.paced.begin()
	_ = http.NewResponseController(w.ResponseWriter).Flush()
	w.paced.end()
}

// Unwrap is for [http.ResponseController].
func (w *response) Unwrap() http.ResponseWriter { return w.ResponseWriter }
