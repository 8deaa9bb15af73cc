package weirhttp_test

import (
	"context"
	"errors"
	"io"
	"math"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/strategies/ratelimit"
	"github.com/weir-go/weir/strategies/retry"
	"github.com/weir-go/weir/strategies/timeout"
	"github.com/weir-go/weir/transport/weirhttp"
)

const url = "https://api.example.com/orders/7"

// The caller gets the response of the last attempt, with its request, and the bodies of all others are closed.
func TestTransport_Retries(t *testing.T) {
	for last, statuses := range map[int][]int{200: {503, 429, 502, 200}, 429: {503, 503, 503, 429}} {
		synctest.Test(t, func(t *testing.T) {
			base := &fakeBase{answer: inTurn(statuses...)}
			transport := roundTripper(t, base, nil, retrying(retry.Options{}))
			r := newRequest(t, http.MethodPut, url, "seven apples")
			resp, err := transport.RoundTrip(r)
			require.NoError(t, err)
			assert.Equal(t, last, resp.StatusCode)
			assert.Same(t, r, resp.Request)
			assert.Equal(t, http.StatusText(last), readAll(t, resp))
			assert.Equal(t, []string{"seven apples", "seven apples", "seven apples", "seven apples"}, base.sent)
			assert.EqualValues(t, 4, base.opened.Load())
			assert.EqualValues(t, 4, base.closed.Load())
		})
	}
}

func TestTransport_SendsIdempotentRequestsAgain(t *testing.T) {
	for _, c := range []struct {
		name, method, body string
		change             func(r *http.Request)
		again              bool
	}{
		{name: "GET", method: "GET", again: true},
		{name: "no method", method: "", again: true},
		{name: "HEAD", method: "HEAD", again: true},
		{name: "DELETE", method: "DELETE", again: true},
		{name: "PUT", method: "PUT", body: "x", again: true},
		{name: "POST", method: "POST", body: "x"},
		{name: "POST without a body", method: "POST"},
		{name: "PATCH", method: "PATCH", body: "x"},
		{name: "POST with a key", method: "POST", body: "x", again: true, change: func(r *http.Request) {
			r.Header.Set("Idempotency-Key", "7")
		}},
		{name: "POST with the other key", method: "POST", body: "x", again: true, change: func(r *http.Request) {
			r.Header["X-Idempotency-Key"] = nil
		}},
		{name: "PUT without GetBody", method: "PUT", body: "x", change: func(r *http.Request) { r.GetBody = nil }},
		{name: "GET with an empty body", method: "GET", again: true, change: func(r *http.Request) {
			r.Body, r.GetBody = http.NoBody, nil
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				base := &fakeBase{answer: inTurn(503)}
				transport := roundTripper(t, base, nil, retrying(retry.Options{MaxRetries: 1}))
				r := newRequest(t, c.method, url, c.body)
				r.Method = c.method
				if c.change != nil {
					c.change(r)
				}
				began := time.Now()
				resp, err := transport.RoundTrip(r)
				require.NoError(t, err)
				assert.Equal(t, 503, resp.StatusCode)
				assert.Equal(t, "Service Unavailable", readAll(t, resp))
				attempts, wait := 1, time.Duration(0)
				if c.again {
					attempts, wait = 2, 2*time.Second
				}
				assert.Equal(t, attempts, base.count())
				assert.Equal(t, wait, time.Since(began), "no wait for a request that is not sent again")
				assert.Equal(t, base.opened.Load(), base.closed.Load())
			})
		})
	}
}

// The caller gets the error of a request that is not sent again as it is.
func TestTransport_ErrorOfARequestThatIsNotSentAgain(t *testing.T) {
	down := errors.New("connection reset")
	base := &fakeBase{answer: func(*http.Request, int) (*http.Response, error) { return nil, down }}
	assert.Same(t, down, failing(t, roundTripper(t, base, nil, retry.New(nil)), newRequest(t, http.MethodPost, url, "x")))
	assert.Equal(t, 1, base.count())
}

// The context of an attempt ends with that of the strategies until the response is there.
func TestTransport_ContextOfAnAttempt(t *testing.T) {
	type key struct{}
	synctest.Test(t, func(t *testing.T) {
		base := &fakeBase{answer: func(r *http.Request, _ int) (*http.Response, error) {
			ctx := r.Context()
			assert.Equal(t, "a value", ctx.Value(key{}))
			assert.Equal(t, "api.example.com", weirhttp.HostFrom(ctx))
			assert.NoError(t, ctx.Err())
			child, cancel := context.WithCancel(ctx)
			defer cancel()
			<-child.Done()
			_, timedOut := errors.AsType[*timeout.Error](context.Cause(ctx))
			assert.True(t, timedOut)
			return nil, ctx.Err()
		}}
		value := pipeline.StrategyFunc(func(ctx context.Context, next pipeline.Next) (any, error) {
			return next.Run(context.WithValue(ctx, key{}, "a value"))
		})
		transport := roundTripper(t, base, nil, timeout.New(time.Second, nil), value)
		err := failing(t, transport, newRequest(t, http.MethodGet, url, ""))
		_, timedOut := errors.AsType[*timeout.Error](err)
		assert.True(t, timedOut, "%v", err)
	})
}

// A response that arrives when the strategies have given up is closed.
func TestTransport_ResponseAtTheDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := &fakeBase{answer: func(r *http.Request, _ int) (*http.Response, error) {
			<-r.Context().Done()
			return answering(200), nil
		}}
		transport := roundTripper(t, base, nil, timeout.New(time.Second, nil))
		err := failing(t, transport, newRequest(t, http.MethodGet, url, ""))
		assert.ErrorIs(t, err, pipeline.ErrRejected)
		assert.EqualValues(t, 1, base.closed.Load())
	})
}

func TestStatusError_RetryAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in := func(d time.Duration) string { return time.Now().Add(d).UTC().Format(http.TimeFormat) }
		const hour = time.Hour
		for _, c := range []struct {
			text, date string
			want       time.Duration
			ok         bool
		}{
			{"0", "", 0, true},
			{" 007\t", "", 7 * time.Second, true},
			{"9223372036", "", 9223372036 * time.Second, true},
			{"9223372037", "", math.MaxInt64, true},
			{"99999999999999999999999999", "", math.MaxInt64, true},
			{in(hour), "", hour, true},
			{in(-hour), "", 0, true},
			{in(hour), "nonsense", hour, true},
			{in(hour), in(-3 * hour), 4 * hour, true}, // by the server's clock
			{"", "", 0, false},
			{"-1", "", 0, false},
			{"+1", "", 0, false},
			{"1.5", "", 0, false},
			{"1s", "", 0, false},
			{"soon", "", 0, false},
		} {
			var failure error
			look := pipeline.StrategyFunc(func(ctx context.Context, next pipeline.Next) (any, error) {
				value, err := next.Run(ctx)
				failure = err
				return value, err
			})
			base := &fakeBase{answer: func(*http.Request, int) (*http.Response, error) {
				return answering(429, "Retry-After", c.text, "Date", c.date), nil
			}}
			resp, err := roundTripper(t, base, nil, look).RoundTrip(newRequest(t, http.MethodGet, url, ""))
			require.NoError(t, err)
			readAll(t, resp)
			d, ok := pipeline.RetryAfter(failure)
			assert.Equal(t, c.ok, ok, c)
			assert.Equal(t, c.want, d, c)
		}
	})
}

func TestTransport_RejectionClosesTheBody(t *testing.T) {
	l := weir.Must(limiter.NewConcurrency(limiter.ConcurrencyOptions{PermitLimit: 1}))
	defer l.Close()
	lease, err := l.TryAcquire(t.Context(), 1)
	require.NoError(t, err)
	defer lease.Release()
	transport := roundTripper(t, &fakeBase{}, nil, ratelimit.New(l, nil))
	body := &closing{Reader: strings.NewReader("x")}
	r := newRequest(t, http.MethodPost, url, "")
	r.Body = body
	err = failing(t, transport, r)
	assert.ErrorIs(t, err, pipeline.ErrRejected)
	assert.True(t, body.closed)
}

type closing struct {
	io.Reader
	closed bool
}

func (c *closing) Close() error { c.closed = true; return nil }

func TestTransport_StrategiesSeeTheFailure(t *testing.T) {
	base := &fakeBase{answer: func(*http.Request, int) (*http.Response, error) {
		return answering(429, "Retry-After", "3"), nil
	}}
	var seen error
	var value any
	look := pipeline.StrategyFunc(func(ctx context.Context, next pipeline.Next) (any, error) {
		value, seen = next.Run(ctx)
		return value, seen
	})
	r := newRequest(t, http.MethodGet, url, "")
	resp, err := roundTripper(t, base, nil, look).RoundTrip(r)
	require.NoError(t, err)
	readAll(t, resp)
	assert.Same(t, resp, value)
	r.Method, r.URL.Host = http.MethodPost, "another.example.com" // the error names the request as it was sent
	status, ok := errors.AsType[*weirhttp.StatusError](seen)
	require.True(t, ok)
	assert.Same(t, resp, status.Response)
	d, ok := pipeline.RetryAfter(seen)
	assert.True(t, ok)
	assert.Equal(t, 3*time.Second, d)
	assert.Equal(t, "weirhttp: GET api.example.com: 429 Too Many Requests, retry after 3s", seen.Error())
}

func TestTransportOptions_Failed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := &fakeBase{answer: inTurn(404, 200)}
		transport := roundTripper(t, base, &weirhttp.TransportOptions{
			Failed: func(resp *http.Response) bool { return resp.StatusCode == http.StatusNotFound },
		}, retrying(retry.Options{}))
		resp, err := transport.RoundTrip(newRequest(t, http.MethodGet, url, ""))
		require.NoError(t, err)
		assert.Equal(t, 200, resp.StatusCode)
		readAll(t, resp)
		assert.EqualValues(t, 2, base.closed.Load())
	})
}

// The caller gets the response of a fallback; the one that it replaces is closed.
func TestTransport_StrategyReturnsAnotherResponse(t *testing.T) {
	base := &fakeBase{answer: inTurn(503)}
	another := &http.Response{StatusCode: http.StatusOK, Body: textBody("from the cache")}
	fallback := pipeline.StrategyFunc(func(ctx context.Context, next pipeline.Next) (any, error) {
		if value, err := next.Run(ctx); err == nil {
			return value, nil
		}
		return another, nil
	})
	transport := roundTripper(t, base, nil, fallback)
	resp, err := transport.RoundTrip(newRequest(t, http.MethodGet, url, ""))
	require.NoError(t, err)
	assert.Equal(t, "from the cache", readAll(t, resp))
	assert.EqualValues(t, 1, base.closed.Load())
}

func TestTransport_StrategyChangesAResponse(t *testing.T) {
	base := &fakeBase{answer: inTurn(200)}
	change := pipeline.StrategyFunc(func(ctx context.Context, next pipeline.Next) (any, error) {
		value, err := next.Run(ctx)
		if resp, ok := value.(*http.Response); ok {
			changed := *resp
			changed.StatusCode = 299
			return &changed, err
		}
		return value, err
	})
	transport := roundTripper(t, base, nil, change)
	resp, err := transport.RoundTrip(newRequest(t, http.MethodGet, url, ""))
	require.NoError(t, err)
	assert.Equal(t, 299, resp.StatusCode)
	assert.EqualValues(t, 0, base.closed.Load())
	assert.Equal(t, "OK", readAll(t, resp))
}

func TestTransport_PipelineReturnsNothing(t *testing.T) {
	nothing := pipeline.StrategyFunc(func(context.Context, pipeline.Next) (any, error) { return nil, nil })
	err := failing(t, roundTripper(t, &fakeBase{}, nil, nothing), newRequest(t, http.MethodGet, url, ""))
	assert.ErrorContains(t, err, "neither a response nor an error")
	base := &fakeBase{answer: func(*http.Request, int) (*http.Response, error) { return nil, nil }}
	err = failing(t, roundTripper(t, base, nil), newRequest(t, http.MethodGet, url, ""))
	assert.ErrorContains(t, err, "base transport returned neither")
}

func TestTransportOptions_Validate(t *testing.T) {
	_, err := weirhttp.NewTransport(nil, &weirhttp.TransportOptions{Base: (*http.Transport)(nil)})
	require.EqualError(t, err, "weirhttp: Base must not be a nil pointer")
	_, err = weirhttp.NewTransport(nil, nil)
	assert.NoError(t, err)
}

// A Transport without a pipeline only sends requests.
func TestTransport_WithoutAPipeline(t *testing.T) {
	base := &fakeBase{answer: inTurn(http.StatusTeapot)}
	for _, p := range []*pipeline.Pipeline{nil, new(pipeline.Pipeline)} {
		resp, err := weir.Must(weirhttp.NewTransport(p, &weirhttp.TransportOptions{Base: base})).RoundTrip(newRequest(t, http.MethodGet, url, ""))
		assert.NoError(t, err)
		assert.Equal(t, http.StatusTeapot, resp.StatusCode)
		readAll(t, resp)
	}
}
