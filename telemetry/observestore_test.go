package telemetry_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/storetest"
	"github.com/weir-go/weir/telemetry"
)

// driveStore observes a store of shared limiters that has made a decision, until stop is called.
func driveStore(ctx context.Context, t *testing.T, l *telemetry.Telemetry) (stop func()) {
	t.Helper()
	m := storetest.NewMemory()
	m.SetShards(func(string, string) string { return "10.0.0.1:6379" })
	s, err := store.New(m, &store.Options{NoListen: true})
	require.NoError(t, err)
	calls, err := s.FixedWindow("calls", limiter.FixedWindowOptions{PermitLimit: 1, Window: time.Minute}, nil)
	require.NoError(t, err)
	_, err = calls.TryAcquire(ctx, 1)
	require.NoError(t, err)
	unobserve := l.ObserveStore("memory", s)
	return func() {
		unobserve()
		require.NoError(t, s.Close())
	}
}

func TestObserveStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, reader := started(t, telemetry.Options{})
		m := storetest.NewMemory()
		s, err := store.New(m, &store.Options{NoListen: true, FailureThreshold: 1})
		require.NoError(t, err)
		defer s.Close()
		stop := l.ObserveStore("memory", s)
		calls, err := s.FixedWindow("calls", limiter.FixedWindowOptions{PermitLimit: 1, Window: time.Hour}, &store.LimiterOptions{CacheRejections: true})
		require.NoError(t, err)

		take := func() {
			_, err := calls.TryAcquire(t.Context(), 1)
			require.NoError(t, err)
		}
		value := func(name string, attrs map[string]any) float64 {
			attrs["store.name"] = "memory"
			return collect(t, reader)[name].at(t, attrs).value
		}
		decided := func(by string) float64 { return value("weir.store.decisions", map[string]any{"decided_by": by}) }
		for range 4 {
			take()
		}
		assert.EqualValues(t, 1, value("weir.store.available", map[string]any{}))
		assert.EqualValues(t, 2, decided("store"), "a grant and a rejection")
		assert.EqualValues(t, 2, decided("cache"))
		assert.Zero(t, value("weir.store.calls", map[string]any{"result": "failure"}))
		before := m.Calls()
		collect(t, reader)
		assert.Equal(t, before, m.Calls(), "looking costs no round trip")

		m.Fail(errors.New("gone"))
		time.Sleep(2 * time.Hour)
		take() // finds out
		take()
		assert.EqualValues(t, 0, value("weir.store.available", map[string]any{}))
		assert.EqualValues(t, 2, decided("outage"))
		assert.EqualValues(t, 2, decided("store"), "a call that failed is not decided by the store, too")
		assert.Positive(t, value("weir.store.calls", map[string]any{"result": "failure"}))

		stop()
		stop()
		assert.NotContains(t, collect(t, reader), "weir.store.available")
	})
}

// If one server of a cluster is away, its name is in the metrics.
func TestObserveStore_Shards(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, reader := started(t, telemetry.Options{})
		m := storetest.NewMemory()
		m.SetShards(func(_, key string) string { return "server-" + key[:min(len(key), 1)] })
		s, err := store.New(m, &store.Options{NoListen: true, FailureThreshold: 1})
		require.NoError(t, err)
		defer s.Close()
		defer l.ObserveStore("memory", s)()
		calls, err := s.PartitionedFixedWindow("calls", limiter.FixedWindowOptions{PermitLimit: 1, Window: time.Hour}, nil)
		require.NoError(t, err)
		m.FailShard("server-b", errors.New("gone"))
		for _, key := range []string{"a", "b"} {
			_, err := calls.TryAcquire(t.Context(), key, 1)
			require.NoError(t, err)
		}
		available := func(attrs map[string]any) float64 {
			attrs["store.name"] = "memory"
			return collect(t, reader)["weir.store.available"].at(t, attrs).value
		}
		assert.EqualValues(t, 0, available(map[string]any{}))
		assert.EqualValues(t, 1, available(map[string]any{"store.shard": "server-a"}))
		assert.EqualValues(t, 0, available(map[string]any{"store.shard": "server-b"}))
	})
}

func TestOnStoreEvent(t *testing.T) {
	var log bytes.Buffer
	l := newTelemetry(t, telemetry.Options{Logger: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelInfo}))})
	tell := l.OnStoreEvent("redis")
	for want, e := range map[string]store.Event{
		`level=ERROR msg="Limiter store event occurred" event.name="store lost" store.name=redis result=gone`:                           {Kind: store.EventStoreLost, Err: errors.New("gone")},
		`level=INFO msg="Limiter store event occurred" event.name="store recovered" store.name=redis duration=2s`:                       {Kind: store.EventStoreRecovered, Away: 2 * time.Second},
		`level=WARN msg="Limiter store event occurred" event.name="refund lost" store.name=redis limiter.name=calls permits=3`:          {Kind: store.EventRefundLost, Limiter: "calls", Key: "ann", Permits: 3},
		`level=ERROR msg="Limiter store event occurred" event.name="lease lost" store.name=redis limiter.name=jobs permits=1`:           {Kind: store.EventLeaseLost, Limiter: "jobs", Permits: 1},
		`level=WARN msg="Limiter store event occurred" event.name="listen failed" store.name=redis result=gone`:                         {Kind: store.EventListenFailed, Err: errors.New("gone")},
		`level=INFO msg="Limiter store event occurred" event.name=reconfigured store.name=redis limiter.name=calls`:                     {Kind: store.EventReconfigured, Limiter: "calls"},
		`level=WARN msg="Limiter store event occurred" event.name=overruled store.name=redis limiter.name=calls result=older`:           {Kind: store.EventOverruled, Limiter: "calls", Err: errors.New("older")},
		`level=ERROR msg="Limiter store event occurred" event.name="store lost" store.name=redis store.shard=10.0.0.1:6379 result=gone`: {Kind: store.EventStoreLost, Shard: "10.0.0.1:6379", Err: errors.New("gone")},
	} {
		log.Reset()
		tell(e)
		line := strings.TrimSpace(log.String())
		assert.True(t, strings.HasSuffix(line, want), "%s\n%s", line, want)
		assert.NotContains(t, line, "ann", "a key may be a person")
	}
}

// A call counts as successful from its beginning until it fails.
func TestObserveStore_CallsNeverGoDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, reader := started(t, telemetry.Options{})
		m := storetest.NewMemory()
		s, err := store.New(m, &store.Options{NoListen: true, CallTimeout: time.Second})
		require.NoError(t, err)
		defer s.Close()
		defer l.ObserveStore("memory", s)()
		calls, err := s.FixedWindow("calls", limiter.FixedWindowOptions{PermitLimit: 100, Window: time.Hour}, nil)
		require.NoError(t, err)
		_, err = calls.TryAcquire(t.Context(), 1)
		require.NoError(t, err)

		m.Stall(true)
		go func() { _, _ = calls.TryAcquire(t.Context(), 1) }()
		synctest.Wait()
		successes := func() float64 {
			return collect(t, reader)["weir.store.calls"].at(t, map[string]any{"store.name": "memory", "result": "success"}).value
		}
		before := successes()
		time.Sleep(2 * time.Second)
		synctest.Wait()
		assert.GreaterOrEqual(t, successes(), before)
		m.Stall(false)
	})
}
