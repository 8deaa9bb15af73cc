package telemetry_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"math"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"

	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/storetest"
	"github.com/weir-go/weir/telemetry"
)

// statistics is a limiter that only has statistics.
type statistics func() limiter.Statistics

func (s statistics) Statistics() limiter.Statistics { return s() }

func permits(n int64) statistics {
	return func() limiter.Statistics { return limiter.Statistics{AvailablePermits: n, QueuedPermits: 1} }
}

// defaultLog returns what slog.Default logs until the test ends.
func defaultLog(t *testing.T) *bytes.Buffer {
	t.Helper()
	var log bytes.Buffer
	was := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
	t.Cleanup(func() { slog.SetDefault(was) })
	return &log
}

func TestObserveLimiter_MaxSeries(t *testing.T) {
	l, reader := started(t, telemetry.Options{MaxSeries: 2})
	stop := l.ObserveLimiter("l0", permits(10))
	for n := range 4 {
		l.ObserveLimiter(fmt.Sprint("l", n+1), permits(1))
	}
	l.ObserveLimiter("l0", permits(20)) // in place of the other, as by a reload
	stop()
	available := func() instrument { return collect(t, reader)["weir.rate_limiter.permit.available"] }
	at := func(name string) float64 { return available().at(t, map[string]any{"limiter.name": name}).value }
	overflow := map[string]any{"otel.metric.overflow": true}

	assert.Len(t, available().points, 3)
	assert.EqualValues(t, 20, at("l0"), "what was there before stays apart")
	assert.EqualValues(t, 1, at("l1"))
	assert.EqualValues(t, 3, available().at(t, overflow).value, "the rest is added up")
	assert.EqualValues(t, 3, collect(t, reader)["weir.rate_limiter.queue.active"].at(t, overflow).value)

	l.ObserveLimiter("unlimited", permits(math.MaxInt64))
	assert.Equal(t, float64(math.MaxInt64), available().at(t, overflow).value)
}

// The Statistics of one limiter can panic. The other limiters are collected nevertheless.
func TestObserveLimiter_StatisticsPanics(t *testing.T) {
	for name, bad := range map[string]statistics{
		"panics":               func() limiter.Statistics { panic("out of order") },
		"leaves the goroutine": func() limiter.Statistics { runtime.Goexit(); return limiter.Statistics{} },
	} {
		t.Run(name, func(t *testing.T) {
			log := defaultLog(t)
			l, reader := started(t, telemetry.Options{})
			l.ObserveLimiter("bad", bad)
			l.ObserveLimiter("good", permits(3))
			for range 2 {
				available := collect(t, reader)["weir.rate_limiter.permit.available"]
				assert.Len(t, available.points, 1)
				assert.EqualValues(t, 3, available.at(t, map[string]any{"limiter.name": "good"}).value)
			}
			if name == "panics" {
				assert.Contains(t, log.String(), `hook="telemetry: Statistics of an observed limiter" panic="out of order"`)
			}
		})
	}
}

func TestObserveLimiter_StatisticsBlocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, reader := started(t, telemetry.Options{})
		released := make(chan struct{})
		var asked atomic.Int64
		l.ObserveLimiter("slow", statistics(func() limiter.Statistics { asked.Add(1); <-released; return limiter.Statistics{} }))
		l.ObserveLimiter("good", permits(3))
		begun := time.Now()
		for range 3 {
			available := collect(t, reader)["weir.rate_limiter.permit.available"]
			assert.Len(t, available.points, 1)
		}
		assert.LessOrEqual(t, time.Since(begun), time.Second, "only the first collection waits")
		assert.EqualValues(t, 1, asked.Load(), "at most one question is open")
		close(released)
		synctest.Wait()
		assert.Len(t, collect(t, reader)["weir.rate_limiter.permit.available"].points, 2, "it answers again")
	})
}

// Two readers that collect at the same time both get the answer.
func TestObserveLimiter_ConcurrentSafe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		readers := []*sdkmetric.ManualReader{sdkmetric.NewManualReader(), sdkmetric.NewManualReader()}
		l := newTelemetry(t, telemetry.Options{
			MeterProvider: sdkmetric.NewMeterProvider(sdkmetric.WithReader(readers[0]), sdkmetric.WithReader(readers[1])),
		})
		l.ObserveLimiter("slow", statistics(func() limiter.Statistics {
			time.Sleep(300 * time.Millisecond)
			return limiter.Statistics{}
		}))
		var wg sync.WaitGroup
		for _, reader := range readers {
			wg.Go(func() {
				assert.Len(t, collect(t, reader)["weir.rate_limiter.permit.available"].points, 1)
			})
		}
		wg.Wait()
	})
}

// Statistics can call methods of the Telemetry that calls it.
func TestObserveLimiter_StatisticsCallsStop(t *testing.T) {
	l, reader := started(t, telemetry.Options{})
	var stop func()
	stop = l.ObserveLimiter("self", statistics(func() limiter.Statistics {
		stop()
		l.ObserveLimiter("other", permits(1))
		return limiter.Statistics{}
	}))
	assert.Len(t, collect(t, reader)["weir.rate_limiter.permit.available"].points, 1)
	collect(t, reader)["weir.rate_limiter.permit.available"].at(t, map[string]any{"limiter.name": "other"})
}

// All limiters are asked at once: ten limiters of a store that answers in 300 ms do not take 3 s.
func TestObserveLimiter_SlowStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, reader := started(t, telemetry.Options{})
		m := storetest.NewMemory()
		s, err := store.New(m, &store.Options{NoListen: true})
		require.NoError(t, err)
		defer s.Close()
		for n := range 10 {
			calls, err := s.FixedWindow(fmt.Sprint("calls", n), limiter.FixedWindowOptions{PermitLimit: 7, Window: time.Minute}, nil)
			require.NoError(t, err)
			_, err = calls.TryAcquire(t.Context(), 1)
			require.NoError(t, err)
			l.ObserveLimiter(fmt.Sprint("calls", n), calls)
		}
		for _, delay := range []time.Duration{300 * time.Millisecond, time.Hour} {
			m.Delay(delay)
			begun := time.Now()
			available := collect(t, reader)["weir.rate_limiter.permit.available"]
			assert.Less(t, time.Since(begun), time.Second, delay)
			assert.Len(t, available.points, 10, delay)
		}
		m.Delay(0)
	})
}
