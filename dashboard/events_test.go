package dashboard

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/strategies/ratelimit"
	"github.com/weir-go/weir/strategies/retry"
)

var rejected = pipeline.Event{Name: "OnRateLimiterRejected", Severity: pipeline.SeverityError, Source: source("orders", "RateLimiter"), Err: errBoom}

func TestEvents_JoinsWhatComesAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var v Events
		began := time.Now()
		for range 1000 {
			v.Hooks().OnEvent(pipeline.WithOperation(t.Context(), "read"), rejected)
		}
		opened := pipeline.Event{Name: "OnCircuitOpened", Severity: pipeline.SeverityError, Source: source("orders", "CircuitBreaker")}
		v.Hooks().OnEvent(t.Context(), opened)
		rows := v.all()
		assert.Len(t, rows, 2)
		v.flush(time.Now())
		rows = v.all()
		assert.Equal(t, "OnRateLimiterRejected", rows[1].name)
		assert.EqualValues(t, 1000, rows[1].count)
		assert.Equal(t, "read", rows[1].operation, "although the pipeline does not set it")
		assert.Equal(t, "boom", rows[1].text)
		assert.EqualValues(t, 1, rows[0].count)

		time.Sleep(20 * time.Second)
		v.Hooks().OnEvent(t.Context(), rejected)
		v.flush(time.Now())
		rows = v.all()
		assert.Len(t, rows, 2)
		assert.Equal(t, "OnRateLimiterRejected", rows[0].name, "the one that changed last comes first")
		assert.EqualValues(t, 1001, rows[0].count)
		assert.Equal(t, began, rows[0].first)
		assert.Equal(t, time.Now(), rows[0].last)

		time.Sleep(joinGap + time.Second)
		v.Hooks().OnEvent(t.Context(), rejected)
		assert.Len(t, v.all(), 3, "after a pause it is another event")
	})
}

func TestEvents_AreBounded(t *testing.T) {
	var v Events
	for i := range maxEventSeries + 500 {
		v.Hooks().OnEvent(t.Context(), pipeline.Event{Name: fmt.Sprint("Event", i), Source: source("p", "s")})
		v.ConfigReloaded(time.Now(), nil)
	}
	assert.Len(t, v.all(), maxEvents)
	assert.LessOrEqual(t, len(v.series), maxEventSeries+1)
	v.flush(time.Now())
	assert.EqualValues(t, 500, v.series[eventKey{name: "further events"}].total)
}

func TestEvents_Rates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var v Events
		v.flush(time.Now())
		for range 10 {
			for range 20 {
				v.Hooks().OnEvent(t.Context(), rejected)
			}
			time.Sleep(2 * time.Second)
			v.flush(time.Now())
		}
		rates := v.counts()
		assert.Len(t, rates, 1)
		assert.InDelta(t, 10, rates[0].rate, 0.001)
		assert.EqualValues(t, 200, rates[0].total)
		for range 6 {
			time.Sleep(2 * time.Second)
			v.flush(time.Now())
		}
		assert.Zero(t, v.counts()[0].rate)
	})
}

func TestEvents_ForgetDropsCounts(t *testing.T) {
	var v Events
	other := rejected
	other.Source.Pipeline = "other"
	for range 2 {
		v.Hooks().OnEvent(t.Context(), rejected)
		v.Hooks().OnEvent(t.Context(), other)
		v.flush(time.Now())
		v.Hooks().Forget(pipeline.Source{Pipeline: "orders"})
	}
	assert.Len(t, v.series, 1)
	assert.EqualValues(t, 2, v.series[eventKey{name: other.Name, source: other.Source}].total)
}

type badError struct{}

func (badError) Error() string { panic("no text") }

func TestEvents_ErrorThatPanics(t *testing.T) {
	var v Events
	e := rejected
	e.Err = badError{}
	v.Hooks().OnEvent(t.Context(), e)
	assert.Equal(t, "(its Error method panicked)", v.all()[0].text)
}

// Without it, no page in JSON could be made as long as the event is listed.
func TestEvents_SeverityThatIsNone(t *testing.T) {
	s := newScene(t, nil)
	s.events.Hooks().OnEvent(t.Context(), pipeline.Event{Name: "Odd", Severity: 77, Source: source("orders", "Strategy")})
	assert.Equal(t, 200, s.get("/overview.json").Code)
	assert.Equal(t, pipeline.SeverityNone, s.events.all()[0].severity)
}

func TestEvents_OfStoresAndFiles(t *testing.T) {
	var v Events
	on := v.OnStoreEvent("redis")
	on(store.Event{Kind: store.EventStoreLost, Err: errBoom})
	on(store.Event{Kind: store.EventStoreRecovered, Away: time.Minute})
	on(store.Event{Kind: store.EventRefundLost, Limiter: "bucket", Key: "alice", Shard: "a"})
	v.ConfigReloaded(time.Now(), errors.New("line 3"))
	var got []string
	for _, r := range v.all() {
		got = append(got, fmt.Sprintf("%s %v %s: %s %s", r.name, r.severity, r.where, r.text, r.key))
	}
	assert.ElementsMatch(t, []string{
		"ConfigRefused Error configuration: line 3 ",
		"refund lost Warning store redis, shard a, limiter bucket:  alice",
		"store recovered Information store redis: away for 1m0s ",
		"store lost Error store redis: boom ",
	}, got)
}

func TestEvents_ConcurrentSafe(t *testing.T) {
	var v Events
	var wg sync.WaitGroup
	const goroutines, each = 8, 2000
	for g := range goroutines {
		wg.Go(func() {
			for i := range each {
				e := rejected
				e.Source.Pipeline = fmt.Sprint("p", i%7)
				v.Hooks().OnEvent(t.Context(), e)
				if i%100 == 0 && g == 0 {
					v.flush(time.Now())
					_, _ = v.all(), v.counts()
				}
			}
		})
	}
	wg.Wait()
	v.flush(time.Now())
	total := int64(0)
	for _, r := range v.counts() {
		total += r.total
	}
	assert.EqualValues(t, goroutines*each, total, "every event is counted once")
}

// listening returns a pipeline that grants all executions, and one that rejects all.
func listening(tb testing.TB, l pipeline.Listener) (granting, rejecting *pipeline.Pipeline) {
	tb.Helper()
	build := func(l limiter.Limiter, listener pipeline.Listener) *pipeline.Pipeline {
		return weir.Must(pipeline.Config{
			Name: "orders", Strategies: []pipeline.Strategy{retry.New(nil), ratelimit.New(l, nil)}, Listener: listener,
		}.Build())
	}
	free := weir.Must(limiter.NewConcurrency(limiter.ConcurrencyOptions{PermitLimit: 1000}))
	used := weir.Must(limiter.NewFixedWindow(limiter.FixedWindowOptions{PermitLimit: 1, Window: 1000 * time.Hour}))
	_, _ = used.TryAcquire(context.Background(), 1)
	tb.Cleanup(func() { _ = free.Close(); _ = used.Close() })
	granting = build(free, l)
	rejecting = weir.Must(pipeline.Config{Name: "orders", Strategies: []pipeline.Strategy{ratelimit.New(used, nil)}, Listener: l}.Build())
	return granting, rejecting
}

func TestEvents_CostNoAllocations(t *testing.T) {
	ctx, fn := t.Context(), func(context.Context) error { return nil }
	granting, rejecting := listening(t, nil)
	v := new(Events)
	observed, observedRejecting := listening(t, v)
	perRun := func(p *pipeline.Pipeline) float64 {
		return testing.AllocsPerRun(200, func() { _ = p.Execute(ctx, fn) })
	}
	assert.Equal(t, perRun(granting), perRun(observed))
	assert.Equal(t, perRun(rejecting), perRun(observedRejecting))
}

func BenchmarkEvents(b *testing.B) {
	ctx, fn := b.Context(), func(context.Context) error { return nil }
	plain, plainRejecting := listening(b, nil)
	observed, observedRejecting := listening(b, new(Events))
	for _, each := range []struct {
		name     string
		pipeline *pipeline.Pipeline
	}{
		{"granted/without", plain},
		{"granted/events", observed},
		{"rejected/without", plainRejecting},
		{"rejected/events", observedRejecting},
	} {
		b.Run(each.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				_ = each.pipeline.Execute(ctx, fn)
			}
		})
	}
}
