package weirhttp_test

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/strategies/circuitbreaker"
	"github.com/weir-go/weir/strategies/hedge"
	"github.com/weir-go/weir/strategies/retry"
)

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

// The breaker counts failures that the caller gets as responses.
func TestTransport_CircuitBreaker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := &fakeBase{answer: inTurn(503, 503, 200)}
		breaker := circuitbreaker.New(&circuitbreaker.Options{
			FailureRatio: -1, ConsecutiveFailures: 2, BreakDuration: 10 * time.Second, RetryRejections: true,
		})
		transport := roundTripper(t, base, nil,
			retry.New(&retry.Options{MaxRetries: 3, Delay: time.Second}), breaker)
		began := time.Now()
		resp, err := transport.RoundTrip(newRequest(t, http.MethodGet, url, ""))
		require.NoError(t, err)
		assert.Equal(t, "OK", readAll(t, resp))
		assert.Equal(t, 3, base.count())
		assert.Equal(t, 11*time.Second, time.Since(began), "the retry waits until the circuit lets a probe through")
		assert.Equal(t, circuitbreaker.Closed, breaker.State())
		assert.Equal(t, base.opened.Load(), base.closed.Load())

		base.answer = func(*http.Request, int) (*http.Response, error) { return answering(503), nil }
		resp, err = transport.RoundTrip(newRequest(t, http.MethodGet, url, ""))
		require.NoError(t, err)
		assert.Equal(t, 503, resp.StatusCode, "two failures, a rejection, and a probe that fails")
		assert.Equal(t, "Service Unavailable", readAll(t, resp))
		assert.Equal(t, 6, base.count())
		assert.Equal(t, circuitbreaker.Open, breaker.State())
		assert.Equal(t, base.opened.Load(), base.closed.Load())
	})
}

// An attempt that is not made says nothing about the server.
func TestTransport_CircuitBreakerIgnoresRefusals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := &fakeBase{answer: inTurn(503)}
		breaker := circuitbreaker.New(&circuitbreaker.Options{FailureRatio: -1, ConsecutiveFailures: 2})
		transport := roundTripper(t, base, nil,
			retry.New(&retry.Options{MaxRetries: 5, Delay: -1, Handle: func(_ any, err error) bool { return err != nil }}), breaker)
		resp, err := transport.RoundTrip(newRequest(t, http.MethodPost, url, "text"))
		require.NoError(t, err)
		assert.Equal(t, 503, resp.StatusCode)
		readAll(t, resp)
		assert.Equal(t, 1, base.count())
		assert.Equal(t, circuitbreaker.Closed, breaker.State())
	})
}

