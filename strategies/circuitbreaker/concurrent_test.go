package circuitbreaker_test

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/strategies/circuitbreaker"
)

// together runs f in that many goroutines, that many times in each.
func together(goroutines, times int, f func(n int)) {
	var wg sync.WaitGroup
	for g := range goroutines {
		wg.Go(func() {
			for i := range times {
				f(g*times + i)
			}
		})
	}
	wg.Wait()
}

// Probes that do not count free their places for others, never for too many.
func TestStrategy_ProbesConcurrent(t *testing.T) {
	for _, probes := range []int{1, 3} {
		synctest.Test(t, func(t *testing.T) {
			o := atOnce(probes)
			s := circuitbreaker.New(&o)
			p := weir.Must(pipeline.New("orders", s))
			_ = p.Execute(t.Context(), fail)
			time.Sleep(5 * time.Second)
			var now, most, ran atomic.Int64
			together(16, 500, func(int) {
				_ = p.Execute(t.Context(), func(context.Context) error {
					defer now.Add(-1)
					ran.Add(1)
					for n := now.Add(1); ; {
						old := most.Load()
						if n <= old || most.CompareAndSwap(old, n) {
							break
						}
					}
					runtime.Gosched()
					return context.Canceled
				})
			})
			assert.LessOrEqual(t, most.Load(), int64(probes))
			assert.Positive(t, ran.Load())
			assert.Equal(t, circuitbreaker.Statistics{State: circuitbreaker.HalfOpen}, s.Statistics())
			for range probes {
				require.NoError(t, p.Execute(t.Context(), succeed))
			}
			assert.Equal(t, circuitbreaker.Closed, s.State())
		})
	}
}

// However many failures come at once, one of them opens the circuit.
func TestStrategy_OpensOnceConcurrent(t *testing.T) {
	for range 20 {
		var opened, asked, ran atomic.Int64
		s := circuitbreaker.New(&circuitbreaker.Options{
			ConsecutiveFailures: 50, BreakDuration: time.Hour,
			OnOpened: func(_ context.Context, tr circuitbreaker.Transition) {
				opened.Add(1)
				assert.GreaterOrEqual(t, tr.ConsecutiveFailures, int64(50))
			},
			BreakDurationFunc: func(context.Context, circuitbreaker.Transition) time.Duration {
				asked.Add(1)
				return 0
			},
		})
		p := weir.Must(pipeline.New("orders", s))
		together(8, 50, func(int) {
			_ = p.Execute(t.Context(), func(context.Context) error { ran.Add(1); return errBoom })
		})
		assert.EqualValues(t, 1, opened.Load())
		assert.EqualValues(t, 1, asked.Load())
		assert.GreaterOrEqual(t, ran.Load(), int64(50))
		assert.Equal(t, circuitbreaker.Open, s.State())
	}
}
