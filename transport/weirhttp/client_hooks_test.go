package weirhttp_test

import (
	"context"
	"io"
	"net/http"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/strategies/hedge"
	"github.com/weir-go/weir/strategies/retry"
	"github.com/weir-go/weir/strategies/timeout"
	"github.com/weir-go/weir/transport/weirhttp"
)

// hookedBody calls its hooks.
type hookedBody struct {
	io.ReadCloser
	read, close func()
}

func (b *hookedBody) Read(p []byte) (int, error) {
	if b.read != nil {
		b.read()
	}
	return b.ReadCloser.Read(p)
}

func (b *hookedBody) Close() error {
	if b.close != nil {
		b.close()
	}
	return b.ReadCloser.Close()
}

// Each hook of the client panics or leaves its goroutine, on the caller's goroutine and on that of a hedge. Everything is closed.
func TestTransport_HooksThatDoNotReturn(t *testing.T) {
	hooks := map[string]func(o *weirhttp.TransportOptions, r *http.Request, leave func()){
		"Idempotent": func(o *weirhttp.TransportOptions, _ *http.Request, leave func()) {
			o.Idempotent = func(*http.Request) bool { leave(); return true }
		},
		"Failed": func(o *weirhttp.TransportOptions, _ *http.Request, leave func()) {
			o.Failed = func(*http.Response) bool { leave(); return true }
		},
		"GetBody": func(_ *weirhttp.TransportOptions, r *http.Request, leave func()) {
			r.GetBody = func() (io.ReadCloser, error) { leave(); return nil, nil }
		},
		"Base": func(o *weirhttp.TransportOptions, _ *http.Request, leave func()) {
			o.Base = plainBase(func(*http.Request) (*http.Response, error) { leave(); return nil, nil })
		},
	}
	for name, set := range hooks {
		for how, leave := range map[string]func(){"panic": func() { panic("bad") }, "Goexit": runtime.Goexit} {
			for kind, strategy := range map[string]pipeline.Strategy{
				"retry": retrying(retry.Options{MaxRetries: 1}), "hedge": hedge.New(&hedge.Options{Delay: time.Second}),
			} {
				t.Run(name+"/"+how+"/"+kind, func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						base := &fakeBase{answer: inTurn(503)}
						o := &weirhttp.TransportOptions{Base: base}
						body := newSignallingBody(nil)
						r := newRequest(t, http.MethodGet, url, "text")
						r.Body = &hookedBody{ReadCloser: r.Body, close: func() { _ = body.Close() }}
						set(o, r, leave)
						transport := roundTripper(t, o.Base, o, strategy, timeout.New(time.Minute, nil))
						done := make(chan struct{})
						go func() {
							defer close(done)
							defer func() { _ = recover() }()
							_, _ = transport.RoundTrip(r) //nolint:bodyclose // it does not return
							t.Error("it returned")
						}()
						<-done
						synctest.Wait()
						body.wait(t)
						assert.Equal(t, base.opened.Load(), base.closed.Load())
					})
				})
			}
		}
	}
}

// If a discarded body panics when the timer closes it, the process does not end.
func TestTransport_BodyThatPanicsWhileItIsDrained(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := plainBase(func(r *http.Request) (*http.Response, error) {
			resp := answering(503)
			unblocked := r.Context().Done()
			resp.Body = &hookedBody{ReadCloser: resp.Body, read: func() { <-unblocked }, close: func() { panic("closed") }}
			return resp, nil
		})
		transport := roundTripper(t, base, nil, retrying(retry.Options{MaxRetries: 1}), timeout.New(time.Minute, nil))
		assert.PanicsWithValue(t, "closed", func() { _ = failing(t, transport, newRequest(t, http.MethodGet, url, "")) })
	})
}

// uncomparableContext panics if it is compared with ==.
type uncomparableContext struct {
	context.Context
	_ []int
}

func TestTransport_ContextThatCannotBeCompared(t *testing.T) {
	r := newRequest(t, http.MethodGet, url, "").WithContext(uncomparableContext{Context: t.Context()})
	resp, err := roundTripper(t, &fakeBase{answer: inTurn(200)}, nil).RoundTrip(r)
	require.NoError(t, err)
	readAll(t, resp)
}
