package weirhttp_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync"
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

// after answers after d, or when the context ends.
func after(d time.Duration, r *http.Request, status int) (*http.Response, error) {
	select {
	case <-time.After(d):
		return answering(status), nil
	case <-r.Context().Done():
		return nil, context.Cause(r.Context())
	}
}

var errLost = errors.New("connection lost")

// A hedge can return the first failure if the last one is an error. The body of the first is buffered by then.
func TestTransport_EarlierFailureIsReturned(t *testing.T) {
	for _, c := range []struct {
		name, body string
		err        string
	}{
		{name: "short", body: "come back later"},
		{name: "long", body: string(make([]byte, 5000)), err: "discarded"},
	} {
		t.Run(c.name, func(t *testing.T) {
			base := &fakeBase{answer: func(_ *http.Request, number int) (*http.Response, error) {
				if number > 0 {
					return nil, errLost
				}
				resp := answering(503)
				resp.Body = textBody(c.body)
				return resp, nil
			}}
			first := pipeline.StrategyFunc(func(ctx context.Context, next pipeline.Next) (any, error) {
				value, err := next.Run(ctx)
				_, again := next.Run(ctx)
				assert.ErrorIs(t, again, errLost)
				assert.EqualValues(t, 1, base.closed.Load(), "closed before the next attempt")
				return value, err
			})
			resp, err := roundTripper(t, base, nil, first, timeout.New(time.Hour, nil)).RoundTrip(newRequest(t, http.MethodGet, url, ""))
			require.NoError(t, err)
			assert.Equal(t, 503, resp.StatusCode)
			got := make([]byte, len(c.body)+1)
			n, err := readFull(resp, got)
			if c.err == "" {
				assert.NoError(t, err)
				assert.Equal(t, c.body, string(got[:n]))
			} else {
				assert.ErrorContains(t, err, c.err)
				assert.Equal(t, 4096, n)
			}
			assert.NoError(t, resp.Body.Close())
			_, err = resp.Body.Read(got)
			assert.Error(t, err)
		})
	}
}

// A client that honours 429 sends one request each time, with a hedge in its pipeline, too.
func TestTransport_RefusalStartsNoHedge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		var requests []time.Duration
		base := &fakeBase{answer: func(*http.Request, int) (*http.Response, error) {
			requests = append(requests, time.Since(began))
			return answering(http.StatusTooManyRequests, "Retry-After", "1"), nil
		}}
		transport := roundTripper(t, base, nil,
			retry.New(&retry.Options{MaxRetries: 2, Delay: time.Millisecond}),
			hedge.New(&hedge.Options{Delay: 200 * time.Millisecond, MaxHedges: 3}))
		resp, err := transport.RoundTrip(newRequest(t, http.MethodGet, url, ""))
		require.NoError(t, err)
		assert.Equal(t, http.StatusTooManyRequests, resp.StatusCode)
		readAll(t, resp)
		assert.Equal(t, []time.Duration{0, time.Second, 2 * time.Second}, requests)
		assert.Equal(t, base.opened.Load(), base.closed.Load())
	})
}

// The other tests use a hedge of their own; this one uses that of weir.

func TestTransport_Hedge(t *testing.T) {
	for _, deaf := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			base := &fakeBase{answer: func(r *http.Request, number int) (*http.Response, error) {
				slow := []time.Duration{time.Minute, 2 * time.Second}[number]
				if deaf { // a loser that does not heed its context
					time.Sleep(slow)
					return answering(200 + number), nil
				}
				return after(slow, r, 200+number)
			}}
			transport := roundTripper(t, base, nil, hedge.New(&hedge.Options{Delay: time.Second}))
			began := time.Now()
			resp, err := transport.RoundTrip(newRequest(t, http.MethodGet, url, ""))
			require.NoError(t, err)
			assert.Equal(t, 3*time.Second, time.Since(began), "the caller does not wait for the loser")
			assert.Equal(t, "Created", readAll(t, resp))
			time.Sleep(time.Minute)
			synctest.Wait()
			assert.Equal(t, base.opened.Load(), base.closed.Load())

			if !deaf { // what is not safe is not hedged
				base.requests = nil
				began = time.Now()
				resp, err = transport.RoundTrip(newRequest(t, http.MethodPut, url, "x"))
				require.NoError(t, err)
				assert.Equal(t, "OK", readAll(t, resp))
				assert.Equal(t, time.Minute, time.Since(began))
				assert.Equal(t, 1, base.count())
			}
		})
	}
}

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

// The response of an attempt that a strategy has abandoned, without ending its context, is closed when it comes.
func TestTransport_ClosesTheResponseOfAnAbandonedAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := &fakeBase{answer: func(r *http.Request, _ int) (*http.Response, error) { return after(time.Second, r, 200) }}
		gone := errors.New("gone")
		abandon := pipeline.StrategyFunc(func(ctx context.Context, next pipeline.Next) (any, error) {
			go func() { _, _ = next.Run(ctx) }()
			synctest.Wait() // it waits for the answer
			return nil, gone
		})
		assert.Same(t, gone, failing(t, roundTripper(t, base, nil, abandon), newRequest(t, http.MethodGet, url, "")))
		time.Sleep(time.Second)
		synctest.Wait()
		assert.EqualValues(t, 1, base.opened.Load())
		assert.EqualValues(t, 1, base.closed.Load())
	})
}

// A response that a retry drops frees its connection before the next attempt.
func TestTransport_DroppedResponseIsClosedFirst(t *testing.T) {
	base := &fakeBase{}
	base.answer = func(r *http.Request, number int) (*http.Response, error) {
		assert.EqualValues(t, number, base.closed.Load())
		return inTurn(404, 200)(r, number)
	}
	transport := roundTripper(t, base, nil, retrying(retry.Options{Delay: -1, Handle: pipeline.HandleResult(func(resp *http.Response, _ error) bool {
		return resp != nil && resp.StatusCode == http.StatusNotFound
	})}))
	resp, err := transport.RoundTrip(newRequest(t, http.MethodGet, url, ""))
	require.NoError(t, err)
	assert.Equal(t, "OK", readAll(t, resp))
}
