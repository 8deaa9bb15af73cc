package weirhttp_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/strategies/retry"
	"github.com/weir-go/weir/transport/weirhttp"
)

// answers returns the answer of a server to request number i, from 0.
type answers func(r *http.Request, number int) (*http.Response, error)

// fakeBase is a base transport without a network. It tracks the bodies of all requests and responses.
type fakeBase struct {
	answer answers

	mu       sync.Mutex
	requests []*http.Request
	sent     []string // the bodies of the requests
	opened   atomic.Int64
	closed   atomic.Int64
}

func (f *fakeBase) RoundTrip(r *http.Request) (*http.Response, error) {
	var sent []byte
	if r.Body != nil {
		sent, _ = io.ReadAll(r.Body)
		_ = r.Body.Close()
	}
	f.mu.Lock()
	number := len(f.requests)
	f.requests = append(f.requests, r)
	f.sent = append(f.sent, string(sent))
	f.mu.Unlock()
	resp, err := f.answer(r, number)
	if resp != nil {
		resp.Request = r
		if resp.Header == nil {
			resp.Header = make(http.Header)
		}
		if resp.Body != nil && resp.Body != http.NoBody {
			f.opened.Add(1)
			resp.Body = &countedBody{ReadCloser: resp.Body, base: f, ctx: r.Context()}
		}
	}
	return resp, err
}

func (f *fakeBase) count() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.requests)
}

// countedBody behaves as the bodies of net/http: it is closed once, and cannot be read when the request's context has
// ended.
type countedBody struct {
	io.ReadCloser
	base *fakeBase
	ctx  context.Context
	once sync.Once
	read atomic.Int64
}

func (b *countedBody) Read(p []byte) (int, error) {
	if err := b.ctx.Err(); err != nil {
		return 0, err
	}
	n, err := b.ReadCloser.Read(p)
	b.read.Add(int64(n))
	return n, err
}

func (b *countedBody) Close() error {
	b.once.Do(func() { b.base.closed.Add(1) })
	return b.ReadCloser.Close()
}

func textBody(text string) io.ReadCloser { return io.NopCloser(strings.NewReader(text)) }

func answering(status int, header ...string) *http.Response {
	h := make(http.Header)
	for i := 0; i+1 < len(header); i += 2 {
		h.Set(header[i], header[i+1])
	}
	return &http.Response{StatusCode: status, Header: h, Body: textBody(http.StatusText(status)), ContentLength: -1}
}

// inTurn answers with the statuses in turn, and then always with the last.
func inTurn(statuses ...int) answers {
	return func(_ *http.Request, number int) (*http.Response, error) {
		return answering(statuses[min(number, len(statuses)-1)]), nil
	}
}

func retrying(o retry.Options) pipeline.Strategy {
	return retry.New(&o)
}

func roundTripper(t *testing.T, base http.RoundTripper, o *weirhttp.TransportOptions, strategies ...pipeline.Strategy) *weirhttp.Transport {
	t.Helper()
	p, err := pipeline.New("test", strategies...)
	if err != nil {
		t.Fatal(err)
	}
	var options weirhttp.TransportOptions
	if o != nil {
		options = *o
	}
	options.Base = base
	return weir.Must(weirhttp.NewTransport(p, &options))
}

func newRequest(t *testing.T, method, url, body string) *http.Request {
	t.Helper()
	var reader io.Reader
	if body != "" {
		reader = strings.NewReader(body)
	}
	r, err := http.NewRequestWithContext(t.Context(), method, url, reader)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// failing returns the error of a round trip that must fail.
func failing(t *testing.T, transport http.RoundTripper, r *http.Request) error {
	t.Helper()
	resp, err := transport.RoundTrip(r)
	if resp != nil {
		_ = resp.Body.Close()
		t.Errorf("a response: %s", resp.Status)
	}
	return err
}

func readAll(t *testing.T, resp *http.Response) string {
	t.Helper()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Errorf("reading the body: %v", err)
	}
	if err := resp.Body.Close(); err != nil {
		t.Errorf("closing the body: %v", err)
	}
	return string(body)
}

// hedging runs next again after every delay until one of the attempts succeeds, each in a goroutine with its own
// context, as a hedge does. It returns without waiting for the losers; done is for waiting until they have ended.
type hedging struct {
	delay    time.Duration
	attempts int
	losers   sync.WaitGroup
}

func (h *hedging) Execute(ctx context.Context, next pipeline.Next) (any, error) {
	type outcome struct {
		value any
		err   error
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	outcomes := make(chan outcome, h.attempts)
	start := func() {
		h.losers.Go(func() {
			own, cancelOwn := context.WithCancel(ctx)
			defer cancelOwn()
			value, err := next.Run(own)
			outcomes <- outcome{value, err}
		})
	}
	start()
	timer := time.NewTimer(h.delay)
	defer timer.Stop()
	var last outcome
	for started, ended := 1, 0; ended < started || started < h.attempts; {
		select {
		case last = <-outcomes:
			if ended++; last.err == nil || errors.Is(last.err, context.Canceled) {
				return last.value, last.err
			}
		case <-timer.C:
		}
		if started < h.attempts {
			started++
			start()
			timer.Reset(h.delay)
		}
	}
	return last.value, last.err
}
