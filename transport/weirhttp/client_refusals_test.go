package weirhttp_test

import (
	"errors"
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

// A client that honours 429 sends one request each time, with a hedge in its pipeline, too.
func TestTransport_RefusalStartsNoHedge(t *testing.T) {
	for _, handle := range []func(any, error) bool{nil} {
		synctest.Test(t, func(t *testing.T) {
			began := time.Now()
			var requests []time.Duration
			base := &fakeBase{answer: func(*http.Request, int) (*http.Response, error) {
				requests = append(requests, time.Since(began))
				return answering(http.StatusTooManyRequests, "Retry-After", "1"), nil
			}}
			transport := roundTripper(t, base, nil,
				retry.New(&retry.Options{MaxRetries: 2, Delay: time.Millisecond}),
				hedge.New(&hedge.Options{Delay: 200 * time.Millisecond, MaxHedges: 3, Handle: handle}))
			resp, err := transport.RoundTrip(newRequest(t, http.MethodGet, url, ""))
			require.NoError(t, err)
			assert.Equal(t, http.StatusTooManyRequests, resp.StatusCode)
			readAll(t, resp)
			assert.Equal(t, []time.Duration{0, time.Second, 2 * time.Second}, requests)
			assert.Equal(t, base.opened.Load(), base.closed.Load())
		})
	}
}

// The refusal of the hedge counts for the retry, and the caller gets a response rather than an error.
func TestTransport_HedgeRefusedBeforeTheFirstFails(t *testing.T) {
	for want, first := range map[int]func(*http.Request) (*http.Response, error){
		http.StatusServiceUnavailable: func(r *http.Request) (*http.Response, error) { return after(2*time.Second, r, 503) },
		http.StatusTooManyRequests: func(*http.Request) (*http.Response, error) {
			time.Sleep(2 * time.Second)
			return nil, errors.New("connection reset")
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			base := &fakeBase{answer: func(r *http.Request, number int) (*http.Response, error) {
				if number%2 == 0 {
					return first(r)
				}
				return answering(http.StatusTooManyRequests, "Retry-After", "10"), nil
			}}
			transport := roundTripper(t, base, nil,
				retry.New(&retry.Options{MaxRetries: 1, Delay: time.Millisecond}), hedge.New(&hedge.Options{Delay: time.Second}))
			began := time.Now()
			resp, err := transport.RoundTrip(newRequest(t, http.MethodGet, url, ""))
			require.NoError(t, err)
			assert.Equal(t, want, resp.StatusCode)
			readAll(t, resp)
			assert.Equal(t, 14*time.Second, time.Since(began), "two attempts of 2 s, and the wait that the hedge was told")
			assert.Equal(t, 4, base.count())
			assert.Equal(t, base.opened.Load(), base.closed.Load())
		})
	}
}

// A circuit that opens under the hedge, so that the hedge is refused, is not waited for: a retry would be refused, too.
func TestTransport_CircuitOpensUnderTheHedge(t *testing.T) {
	for _, handle := range []func(any, error) bool{nil} {
		for rejections, want := range map[bool]time.Duration{false: time.Millisecond, true: time.Minute + time.Millisecond} {
			synctest.Test(t, func(t *testing.T) {
				base := &fakeBase{answer: inTurn(503, 503, 503, 200)}
				transport := roundTripper(t, base, nil,
					retry.New(&retry.Options{Delay: time.Millisecond, Handle: handle}),
					hedge.New(&hedge.Options{Delay: time.Second}),
					circuitbreaker.New(&circuitbreaker.Options{ConsecutiveFailures: 3, BreakDuration: time.Minute, RetryRejections: rejections}))
				began := time.Now()
				resp, err := transport.RoundTrip(newRequest(t, http.MethodGet, url, ""))
				require.NoError(t, err)
				assert.Equal(t, rejections, resp.StatusCode == http.StatusOK)
				readAll(t, resp)
				assert.Equal(t, want, time.Since(began))
				assert.Equal(t, base.opened.Load(), base.closed.Load())
			})
		}
	}
}
