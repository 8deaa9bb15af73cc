package main

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
)

func statusWith(remaining uint32) *ratelimitv3.RateLimitResponse_DescriptorStatus {
	return &ratelimitv3.RateLimitResponse_DescriptorStatus{
		Code: ratelimitv3.RateLimitResponse_OK, LimitRemaining: remaining, CurrentLimit: &ratelimitv3.RateLimitResponse_RateLimit{},
	}
}

func good() *ratelimitv3.RateLimitResponse {
	return &ratelimitv3.RateLimitResponse{
		OverallCode: ratelimitv3.RateLimitResponse_OK, Statuses: []*ratelimitv3.RateLimitResponse_DescriptorStatus{statusWith(1), statusWith(1)},
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
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		l := load{perSecond: 1000, keys: 10, duration: 2 * time.Second, timeout: 10 * time.Second, seed: 1, sleepUntil: sleepInBubble}
		answer := encoded(t, good())
		r, err := l.send(t.Context(), func(_, _ int, answered func([]byte, error)) {
			go func() {
				if d := time.Since(began); d >= 500*time.Millisecond && d < 1500*time.Millisecond {
					time.Sleep(1500*time.Millisecond - d)
				}
				answered(answer, nil)
			}()
		})
		require.NoError(t, err)
		assert.Equal(t, 2000, r.sent)
		assert.Zero(t, r.failed, r.problem)
		// Half of the requests waited, evenly between nothing and a second; 20 ms are not late.
		assert.Equal(t, 980, r.late)
		assert.Equal(t, 999*time.Millisecond, quantile(r.latencies, 0.999))
		assert.Equal(t, 500*time.Millisecond, quantile(r.latencies, 0.75).Round(10*time.Millisecond))
		assert.Zero(t, quantile(r.starts, 1))
	})
}

func sleepInBubble(due time.Time) { time.Sleep(time.Until(due)) }

func TestLoad_failures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := load{perSecond: 1000, keys: 10, duration: time.Second, timeout: time.Second, seed: 1, sleepUntil: sleepInBubble}
		var forgotten []func([]byte, error)
		answer := encoded(t, good())
		r, err := l.send(t.Context(), func(i, _ int, answered func([]byte, error)) {
			switch i % 5 {
			case 0:
				answered(nil, errors.New("away"))
			case 1:
				answered(encoded(t, &ratelimitv3.RateLimitResponse{OverallCode: ratelimitv3.RateLimitResponse_OVER_LIMIT}), nil)
			case 2:
				forgotten = append(forgotten, answered)
			case 3: // too late
				time.AfterFunc(1100*time.Millisecond, func() { answered(answer, nil) })
			default:
				answered(answer, nil)
			}
		})
		require.NoError(t, err)
		assert.Equal(t, 1000, r.sent)
		assert.Equal(t, 800, r.failed)
		assert.Equal(t, 800, r.late)
		assert.Equal(t, "away", r.problem)
		for _, answered := range forgotten {
			answered(nil, nil) // changes nothing any more
		}
		time.Sleep(2 * time.Second)
	})
}

// encoded returns a message as it is sent.
func encoded(t *testing.T, m proto.Message) []byte {
	b, err := proto.Marshal(m)
	require.NoError(t, err)
	return b
}

func TestCheck(t *testing.T) {
	require.NoError(t, check(encoded(t, good())))
	none := good()
	none.Statuses[1].CurrentLimit = nil
	require.Error(t, check(encoded(t, none)))
	short := good()
	short.Statuses = short.Statuses[:1]
	require.Error(t, check(encoded(t, short)))
	over := good()
	over.OverallCode = ratelimitv3.RateLimitResponse_OVER_LIMIT
	require.Error(t, check(encoded(t, over)))
	require.Error(t, check([]byte("no message")))
}
