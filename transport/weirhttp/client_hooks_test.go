package weirhttp_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

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

// misbehaviors are what a function of the program can do. ctx is that of the request and has a deadline; again makes
// another request with the same Transport.
var misbehaviors = map[string]func(ctx context.Context, again func()){
	"panic":  func(context.Context, func()) { panic("bad") },
	"Goexit": func(context.Context, func()) { runtime.Goexit() },
	"block":  func(ctx context.Context, _ func()) { <-ctx.Done() },
	"again":  func(_ context.Context, again func()) { again() },
}

// Each hook of the client panics, leaves its goroutine, blocks until it is cancelled, or calls
// back, on the caller's goroutine and on that of a hedge. Everything is closed, and the Transport still works.
func TestTransport_HooksThatMisbehave(t *testing.T) {
	hooks := map[string]func(o *weirhttp.TransportOptions, r *http.Request, bad func()){
		"Idempotent": func(o *weirhttp.TransportOptions, _ *http.Request, bad func()) {
			o.Idempotent = func(*http.Request) bool { bad(); return true }
		},
		"Failed": func(o *weirhttp.TransportOptions, _ *http.Request, bad func()) {
			o.Failed = func(*http.Response) bool { bad(); return true }
		},
		"GetBody": func(_ *weirhttp.TransportOptions, r *http.Request, bad func()) {
			r.GetBody = func() (io.ReadCloser, error) { bad(); return textBody("text"), nil }
		},
		"Base": func(o *weirhttp.TransportOptions, _ *http.Request, bad func()) {
			o.Base = plainBase(func(r *http.Request) (*http.Response, error) {
				bad()
				return nil, errors.Join(errLost, r.Body.Close())
			})
		},
	}
	for name, set := range hooks {
		for how, misbehave := range misbehaviors {
			for _, hedged := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s/%s/hedged=%v", name, how, hedged), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						base := &fakeBase{answer: inTurn(503)}
						o := &weirhttp.TransportOptions{}
						body := newSignallingBody(nil)
						ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
						defer cancel()
						r := newRequest(t, http.MethodGet, url, "text").WithContext(ctx)
						r.Body = &hookedBody{ReadCloser: r.Body, close: func() { _ = body.Close() }}
						o.Base = base
						var transport *weirhttp.Transport
						var within atomic.Bool
						set(o, r, func() {
							if within.Load() {
								return
							}
							misbehave(ctx, func() {
								within.Store(true)
								defer within.Store(false)
								if resp, err := transport.RoundTrip(newRequest(t, http.MethodPost, url, "x")); err == nil {
									readAll(t, resp)
								}
							})
						})
						strategy := retrying(retry.Options{MaxRetries: 1})
						if hedged {
							strategy = hedge.New(&hedge.Options{Delay: time.Second})
						}
						transport = roundTripper(t, o.Base, o, strategy, timeout.New(time.Minute, nil))
						returned := make(chan bool)
						go func() {
							ok := false
							defer func() { _ = recover(); returned <- ok }()
							resp, err := transport.RoundTrip(r)
							if ok = true; err == nil {
								_ = resp.Body.Close()
							}
						}()
						assert.Equal(t, how == "block" || how == "again", <-returned)
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

// A Retry-After date counts from the response's Date, by the server's clock.
func TestTransport_RetryAfterDateCountsFromTheResponsesDate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		there := time.Now().Add(-3 * time.Hour).UTC() // a clock that is wrong
		base := &fakeBase{answer: func(_ *http.Request, number int) (*http.Response, error) {
			if number > 0 {
				return answering(200), nil
			}
			return answering(503, "Date", there.Format(http.TimeFormat), "Retry-After", there.Add(9*time.Second).Format(http.TimeFormat)), nil
		}}
		began := time.Now()
		resp, err := roundTripper(t, base, nil, retrying(retry.Options{Delay: -1})).RoundTrip(newRequest(t, http.MethodGet, url, ""))
		require.NoError(t, err)
		readAll(t, resp)
		assert.Equal(t, 9*time.Second, time.Since(began))
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
