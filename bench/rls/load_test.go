package main

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func status(remaining uint32) *ratelimitv3.RateLimitResponse_DescriptorStatus {
	return &ratelimitv3.RateLimitResponse_DescriptorStatus{
		Code: ratelimitv3.RateLimitResponse_OK, LimitRemaining: remaining, CurrentLimit: &ratelimitv3.RateLimitResponse_RateLimit{},
	}
}

func good() *ratelimitv3.RateLimitResponse {
	return &ratelimitv3.RateLimitResponse{
		OverallCode: ratelimitv3.RateLimitResponse_OK, Statuses: []*ratelimitv3.RateLimitResponse_DescriptorStatus{status(1), status(1)},
	}
}

func TestQuantile(t *testing.T) {
	sorted := make([]time.Duration, 1000)
	for i := range sorted {
		sorted[i] = time.Duration(i + 1)
	}
	assert.EqualValues(t, 501, quantile(sorted, 0.5))
	assert.EqualValues(t, 1000, quantile(sorted, 0.999))
	assert.EqualValues(t, 1000, quantile(sorted, 1))
	assert.Zero(t, quantile(nil, 0.5))
}

// A server that stands still for a second delays each request that was due meanwhile, and the load does not wait for it.
func TestLoad_coordinatedOmission(t *testing.T) {
	began := time.Now()
	l := load{perSecond: 1000, keys: 10, duration: 2 * time.Second, timeout: 10 * time.Second, seed: 1}
	r, err := l.send(t.Context(), func(context.Context, int, int) (*ratelimitv3.RateLimitResponse, error) {
		if d := time.Since(began); d > 500*time.Millisecond && d < 1500*time.Millisecond {
			time.Sleep(1500*time.Millisecond - d)
		}
		return good(), nil
	})
	require.NoError(t, err)
	assert.Equal(t, 2000, r.sent)
	assert.Zero(t, r.failed)
	// Half of the requests waited, evenly between nothing and a second.
	assert.InDelta(t, 980, r.late, 100)
	assert.InDelta(t, time.Second, quantile(r.latencies, 0.999), float64(100*time.Millisecond))
	assert.InDelta(t, 500*time.Millisecond, quantile(r.latencies, 0.75), float64(100*time.Millisecond))
}

func TestLoad_failures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := load{
			perSecond: 1000, keys: 10, duration: time.Second, timeout: time.Second, seed: 1,
			sleepUntil: func(due time.Time) { time.Sleep(time.Until(due)) },
		}
		r, err := l.send(t.Context(), func(ctx context.Context, i, _ int) (*ratelimitv3.RateLimitResponse, error) {
			switch i % 4 {
			case 0:
				return nil, errors.New("away")
			case 1:
				return &ratelimitv3.RateLimitResponse{OverallCode: ratelimitv3.RateLimitResponse_OVER_LIMIT}, nil
			case 2:
				<-ctx.Done()
				return nil, ctx.Err()
			default:
				return good(), nil
			}
		})
		require.NoError(t, err)
		assert.Equal(t, 1000, r.sent)
		assert.Equal(t, 750, r.failed)
		assert.Equal(t, 750, r.late)
		assert.NotEmpty(t, r.problem)
	})
}

func TestCheck(t *testing.T) {
	require.NoError(t, check(good()))
	none := good()
	none.Statuses[1].CurrentLimit = nil
	require.Error(t, check(none))
	short := good()
	short.Statuses = short.Statuses[:1]
	require.Error(t, check(short))
	over := good()
	over.OverallCode = ratelimitv3.RateLimitResponse_OVER_LIMIT
	require.Error(t, check(over))
}
