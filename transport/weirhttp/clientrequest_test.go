package weirhttp_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
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

// The caller can reuse the request when the body is closed. Attempts that a hedge has abandoned go on with the request
// as it was.
func TestTransport_LateAttemptsDoNotSeeTheNextRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		changed := make(chan struct{})
		var wg sync.WaitGroup
		base := plainBase(func(r *http.Request) (*http.Response, error) {
			if weirhttp.HostFrom(r.Context()) != "api.example.com" {
				t.Error("the host")
			}
			if hedge.AttemptNumber(r.Context()) == 1 {
				return answering(200), nil
			}
			defer wg.Done()
			<-changed
			assert.Equal(t, "/orders/7", r.URL.Path)
			assert.Equal(t, http.Header{"X-Mine": {"one", "two"}}, r.Header)
			assert.Equal(t, url, r.URL.String())
			assert.Equal(t, "api.example.com", weirhttp.HostFrom(r.Context()))
			assert.Equal(t, []string{"identity"}, r.TransferEncoding)
			assert.Equal(t, "b", r.Form.Get("a"))
			resp := answering(503)
			resp.Request = r
			return resp, nil
		})
		var late error
		look := pipeline.StrategyFunc(func(ctx context.Context, next pipeline.Next) (any, error) {
			value, err := next.Run(ctx)
			if err != nil {
				late = err
			}
			return value, err
		})
		o := &weirhttp.TransportOptions{Failed: func(resp *http.Response) bool {
			if resp.StatusCode == http.StatusServiceUnavailable {
				assert.Equal(t, "/orders/7", resp.Request.URL.Path)
			}
			return resp.StatusCode == http.StatusServiceUnavailable
		}}
		transport := roundTripper(t, base, o, hedge.New(&hedge.Options{Delay: time.Second}), look)
		r := newRequest(t, http.MethodGet, url, "")
		r.Header["X-Mine"] = []string{"one", "two"}
		r.TransferEncoding = []string{"identity"}
		r.Form = map[string][]string{"a": {"b"}}
		wg.Add(1)
		resp, err := transport.RoundTrip(r)
		require.NoError(t, err)
		readAll(t, resp)
		r.URL.Path, r.URL.Host, r.Header["X-Mine"][0] = "/another", "another.example.com", "three"
		r.TransferEncoding[0] = "chunked"
		r.Form.Set("a", "c")
		r.Header.Set("X-More", "x")
		close(changed)
		wg.Wait()
		synctest.Wait()
		assert.ErrorIs(t, late, hedge.ErrLost)
	})
}

// RoundTrip does not return while an attempt calls GetBody, and GetBody is not called after it: the caller can reuse
// what GetBody reads.
func TestTransport_GetBodyIsCalledWithinRoundTrip(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var getBody func() (io.ReadCloser, error)
		base := plainBase(func(r *http.Request) (*http.Response, error) {
			closeBody(r)
			if hedge.AttemptNumber(r.Context()) == 0 {
				getBody = r.GetBody
			}
			time.Sleep(2 * time.Second)
			return answering(200), nil
		})
		transport := roundTripper(t, base, nil, hedge.New(&hedge.Options{Delay: time.Second}))
		r := newRequest(t, http.MethodGet, url, "text")
		calls := 0
		r.GetBody = func() (io.ReadCloser, error) {
			calls++
			time.Sleep(time.Minute)
			return textBody("text"), nil
		}
		began := time.Now()
		resp, err := transport.RoundTrip(r)
		require.NoError(t, err)
		assert.Equal(t, time.Minute+time.Second, time.Since(began))
		readAll(t, resp)
		_, err = getBody()
		assert.ErrorContains(t, err, "has been answered")
		assert.Equal(t, 1, calls)
		time.Sleep(time.Minute) // for the loser
	})
}

func closeBody(r *http.Request) {
	if r.Body != nil {
		_ = r.Body.Close()
	}
}

// If GetBody fails, its error is returned, and there is no other attempt.
func TestTransport_GetBodyFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := &fakeBase{answer: inTurn(503)}
		transport := roundTripper(t, base, nil, retrying(retry.Options{}))
		r := newRequest(t, http.MethodPut, url, "text")
		gone := errors.New("the file is gone")
		r.GetBody = func() (io.ReadCloser, error) { return nil, gone }
		err := failing(t, transport, r)
		assert.ErrorIs(t, err, gone)
		assert.EqualError(t, err, "weirhttp: the body for attempt 2: the file is gone")
		assert.Equal(t, 1, base.count())
		assert.Equal(t, base.opened.Load(), base.closed.Load())
	})
}

// Two bodies at the same time would fill in the same trailer.
func TestTransport_RequestWithATrailerIsNotHedged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := &fakeBase{answer: func(r *http.Request, _ int) (*http.Response, error) { return after(time.Minute, r, 200) }}
		transport := roundTripper(t, base, nil, hedge.New(&hedge.Options{Delay: time.Second}))
		r := newRequest(t, http.MethodGet, url, "text")
		r.Trailer = http.Header{"X-Sum": nil}
		resp, err := transport.RoundTrip(r)
		require.NoError(t, err)
		readAll(t, resp)
		assert.Equal(t, 1, base.count())
	})
}

// The refusal of a second attempt is not the result of a hedge while the first attempt can still succeed.
func TestTransport_RefusalDoesNotWinAgainstTheAttemptThatRuns(t *testing.T) {
	for _, handle := range []func(any, error) bool{nil} {
		for _, method := range []string{http.MethodGet, http.MethodPut, http.MethodPost} {
			synctest.Test(t, func(t *testing.T) {
				base := &fakeBase{answer: func(r *http.Request, _ int) (*http.Response, error) { return after(time.Minute, r, 200) }}
				transport := roundTripper(t, base, nil, hedge.New(&hedge.Options{Delay: time.Second, MaxHedges: 3, Handle: handle}))
				r := newRequest(t, method, url, "text")
				r.GetBody = nil // a GET that may not be sent again either
				resp, err := transport.RoundTrip(r)
				require.NoError(t, err, method)
				assert.Equal(t, "OK", readAll(t, resp))
				assert.Equal(t, 1, base.count())
			})
		}
	}
}

// Many loops that each reuse one request, as pollers do, over real connections, under the race detector.
func TestTransport_PollingWithOneRequestConcurrentSafe(t *testing.T) {
	for _, http2 := range []bool{false, true} {
		t.Run(fmt.Sprint("http2=", http2), func(t *testing.T) {
			var count atomic.Int64
			server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.RawQuery != r.Header.Get("X-Query") {
					t.Errorf("one request with parts of another: %q, %q", r.URL.RawQuery, r.Header.Get("X-Query"))
				}
				switch count.Add(1) % 5 {
				case 0:
					http.Error(w, strings.Repeat("busy", 500), http.StatusServiceUnavailable)
				case 1:
					select {
					case <-time.After(20 * time.Millisecond): // real: it is a real connection
					case <-r.Context().Done():
					}
				}
				_, _ = io.WriteString(w, r.URL.RawQuery)
			}))
			server.Config.ErrorLog = log.New(io.Discard, "", 0) // losers of a hedge end in the handshake
			server.EnableHTTP2 = http2
			server.StartTLS()
			defer server.Close()
			base, ok := server.Client().Transport.(*http.Transport)
			require.True(t, ok)
			defer base.CloseIdleConnections()
			base.MaxIdleConnsPerHost = 16
			transport := roundTripper(t, base, nil,
				retrying(retry.Options{MaxRetries: 3, Delay: time.Millisecond}),
				hedge.New(&hedge.Options{Delay: time.Millisecond, MaxHedges: 2}),
				timeout.New(15*time.Millisecond, nil))
			var wg sync.WaitGroup
			for i := range 4 {
				wg.Go(func() {
					r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL, nil)
					if !assert.NoError(t, err) {
						return
					}
					for j := range 50 {
						r.URL.RawQuery = fmt.Sprint(i, ".", j)
						r.Header.Set("X-Query", r.URL.RawQuery)
						resp, err := transport.RoundTrip(r)
						if err != nil {
							continue // timed out too often
						}
						if text, err := io.ReadAll(resp.Body); err == nil && resp.StatusCode == http.StatusOK {
							assert.Equal(t, r.URL.RawQuery, string(text))
						}
						_ = resp.Body.Close()
					}
				})
			}
			wg.Wait()
		})
	}
}
