package weirhttp_test

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/strategies/retry"
	"github.com/weir-go/weir/strategies/timeout"
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

func TestTransport_HedgeClosesAllButTheFastest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := &fakeBase{answer: func(r *http.Request, number int) (*http.Response, error) {
			return after([]time.Duration{time.Minute, time.Second, time.Minute}[number], r, 200+number)
		}}
		hedge := &hedging{delay: 600 * time.Millisecond, attempts: 3}
		transport := roundTripper(t, base, nil, hedge)
		r := newRequest(t, http.MethodGet, url, "")
		resp, err := transport.RoundTrip(r)
		require.NoError(t, err)
		assert.Equal(t, 201, resp.StatusCode)
		hedge.losers.Wait()
		assert.Equal(t, "Created", readAll(t, resp))
		assert.Equal(t, 3, base.count())
		assert.EqualValues(t, 1, base.opened.Load(), "the others were cancelled")
		assert.EqualValues(t, 1, base.closed.Load())
		assert.NotSame(t, base.requests[0], base.requests[1])
		base.requests[0].Header.Set("X-Mine", "1")
		assert.Empty(t, base.requests[1].Header)
		assert.Empty(t, r.Header)
	})
}

// A loser that ignores its context answers when the caller has its answer already.
func TestTransport_HedgeClosesLateResponses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := &fakeBase{answer: func(_ *http.Request, number int) (*http.Response, error) {
			time.Sleep(time.Minute - time.Duration(number)*30*time.Second)
			return answering(200 + number), nil
		}}
		hedge := &hedging{delay: time.Second, attempts: 2}
		transport := roundTripper(t, base, nil, hedge)
		resp, err := transport.RoundTrip(newRequest(t, http.MethodGet, url, ""))
		require.NoError(t, err)
		assert.Equal(t, 201, resp.StatusCode)
		assert.Equal(t, "Created", readAll(t, resp))
		assert.EqualValues(t, 1, base.opened.Load())
		hedge.losers.Wait()
		assert.EqualValues(t, 2, base.opened.Load())
		assert.EqualValues(t, 2, base.closed.Load())
	})
}

func TestTransport_HedgeAllFail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := &fakeBase{answer: func(r *http.Request, number int) (*http.Response, error) {
			return after(time.Duration(3-number)*10*time.Second, r, 502+number%2)
		}}
		hedge := &hedging{delay: time.Second, attempts: 3}
		transport := roundTripper(t, base, nil, hedge)
		resp, err := transport.RoundTrip(newRequest(t, http.MethodGet, url, ""))
		require.NoError(t, err)
		assert.Equal(t, 502, resp.StatusCode, "the last one, which was the first")
		assert.Equal(t, "Bad Gateway", readAll(t, resp))
		assert.EqualValues(t, 3, base.opened.Load())
		assert.EqualValues(t, 3, base.closed.Load())
	})
}

// A request whose method is not safe is not sent twice at the same time, even if it is idempotent.
func TestTransport_HedgeDoesNotRepeatAPut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, method := range []string{http.MethodPut, http.MethodPost} {
			base := &fakeBase{answer: func(r *http.Request, _ int) (*http.Response, error) {
				return after(10*time.Second, r, 200)
			}}
			transport := roundTripper(t, base, nil, &hedging{delay: time.Second, attempts: 3})
			resp, err := transport.RoundTrip(newRequest(t, method, url, "x"))
			require.NoError(t, err)
			assert.Equal(t, "OK", readAll(t, resp))
			assert.Equal(t, 1, base.count())
			assert.Equal(t, base.opened.Load(), base.closed.Load())

			base.answer = func(r *http.Request, _ int) (*http.Response, error) { return after(10*time.Second, r, 503) }
			resp, err = transport.RoundTrip(newRequest(t, http.MethodPost, url, "x"))
			require.NoError(t, err)
			assert.Equal(t, 503, resp.StatusCode)
			assert.Equal(t, "Service Unavailable", readAll(t, resp))
			assert.Equal(t, 2, base.count())
			assert.Equal(t, base.opened.Load(), base.closed.Load())
		}
	})
}

func TestTransport_HedgeOfRetriesWithTimeouts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := &fakeBase{answer: func(r *http.Request, number int) (*http.Response, error) {
			if number == 4 {
				return after(time.Second, r, 200)
			}
			return after(time.Duration(number%3)*time.Second, r, 503)
		}}
		hedge := &hedging{delay: 1500 * time.Millisecond, attempts: 3}
		transport := roundTripper(t, base, nil, hedge,
			retrying(retry.Options{MaxRetries: 10, Delay: 100 * time.Millisecond}), timeout.New(1900*time.Millisecond, nil))
		resp, err := transport.RoundTrip(newRequest(t, http.MethodGet, url, ""))
		require.NoError(t, err)
		assert.Equal(t, 200, resp.StatusCode)
		hedge.losers.Wait()
		time.Sleep(time.Hour)
		assert.Equal(t, "OK", readAll(t, resp))
		assert.Equal(t, base.opened.Load(), base.closed.Load())
	})
}

// An attempt that begins after the answer sends nothing.
func TestTransport_AttemptAfterTheAnswer(t *testing.T) {
	base := &fakeBase{answer: inTurn(200)}
	var late func() error
	keep := pipeline.StrategyFunc(func(ctx context.Context, next pipeline.Next) (any, error) {
		late = func() error { _, err := next.Run(ctx); return err }
		return next.Run(ctx)
	})
	resp, err := roundTripper(t, base, nil, keep).RoundTrip(newRequest(t, http.MethodGet, url, ""))
	require.NoError(t, err)
	assert.ErrorContains(t, late(), "has been answered")
	assert.Equal(t, 1, base.count())
	readAll(t, resp)
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
