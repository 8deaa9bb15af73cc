package telemetry_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/registry"
	"github.com/weir-go/weir/strategies/circuitbreaker"
	"github.com/weir-go/weir/telemetry"
)

// breakers is a registry with one pipeline, "orders", whose strategies are what build adds.
type breakers struct {
	*registry.Registry
	*pipeline.Pipeline
	state func() map[string]float64 // of the circuit: state to value
}

func newBreakers(t *testing.T, build registry.BuildFunc) *breakers {
	t.Helper()
	l, reader := started(t, telemetry.Options{})
	b := &breakers{Registry: registry.New(&registry.Options{Listener: l})}
	var err error
	b.Pipeline, err = b.GetOrDefine("orders", build)
	require.NoError(t, err)
	b.state = statesOf(t, reader)
	return b
}

// statesOf returns a function that reads the state of the only circuit.
func statesOf(t *testing.T, reader *sdkmetric.ManualReader) func() map[string]float64 {
	t.Helper()
	return func() map[string]float64 {
		states := map[string]float64{}
		for _, p := range collect(t, reader)["weir.circuit_breaker.state"].points {
			states[p.attributes["state"].(string)] = p.value
		}
		return states
	}
}

func (b *breakers) close(t *testing.T) {
	t.Helper()
	require.NoError(t, b.Registry.Close(t.Context()))
}

var (
	isClosed   = map[string]float64{"closed": 1, "open": 0, "half_open": 0}
	isOpen     = map[string]float64{"closed": 0, "open": 1, "half_open": 0}
	isHalfOpen = map[string]float64{"closed": 0, "open": 0, "half_open": 1}
)

func newBreaker(control *circuitbreaker.Control) *circuitbreaker.Strategy {
	return circuitbreaker.New(&circuitbreaker.Options{ConsecutiveFailures: 1, BreakDuration: time.Minute, Control: control})
}

// An alert on an open circuit ends when a reload replaces the circuit, even while executions run on the old one.
func TestInForce_ReplacedCircuit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBreakers(t, func(b *registry.Builder) error { b.Add(newBreaker(nil)); return nil })
		defer b.close(t)
		running, fails := make(chan error), make(chan error)
		go func() { running <- b.Execute(t.Context(), func(context.Context) error { return <-fails }) }()
		synctest.Wait()
		require.ErrorIs(t, b.Execute(t.Context(), fail), errBoom)
		assert.Equal(t, isOpen, b.state())

		require.NoError(t, b.Reload(t.Context()))
		assert.Equal(t, isClosed, b.state())
		require.NoError(t, b.Execute(t.Context(), succeed))

		fails <- errBoom
		require.ErrorIs(t, <-running, errBoom)
		assert.Equal(t, isClosed, b.state(), "what becomes of the old one does not show")

		require.ErrorIs(t, b.Execute(t.Context(), fail), errBoom)
		assert.Equal(t, isOpen, b.state())
	})
}

// The execution that opens the circuit can belong to the previous version.
func TestInForce_CircuitOpensWhileDrained(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBreakers(t, func(b *registry.Builder) error { b.Add(newBreaker(nil)); return nil })
		defer b.close(t)
		running, fails := make(chan error), make(chan error)
		go func() { running <- b.Execute(t.Context(), func(context.Context) error { return <-fails }) }()
		synctest.Wait()
		require.NoError(t, b.Reload(t.Context()))
		fails <- errBoom
		require.ErrorIs(t, <-running, errBoom)
		assert.Equal(t, isClosed, b.state())
	})
}

func TestInForce_KeptCircuit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		control := new(circuitbreaker.Control)
		kept := newBreaker(control)
		b := newBreakers(t, func(b *registry.Builder) error { b.Add(kept); return nil })
		defer b.close(t)
		require.ErrorIs(t, b.Execute(t.Context(), fail), errBoom)
		require.NoError(t, b.Reload(t.Context()))
		assert.Equal(t, isOpen, b.state())
		time.Sleep(time.Minute)
		require.NoError(t, b.Execute(t.Context(), func(context.Context) error {
			assert.Equal(t, isHalfOpen, b.state())
			return nil
		}))
		assert.Equal(t, isClosed, b.state())
		control.Isolate()
		assert.Equal(t, isOpen, b.state())
	})
}

func TestInForce_RemovedCircuit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		add := true
		b := newBreakers(t, func(b *registry.Builder) error {
			if add {
				b.Add(newBreaker(nil))
			}
			return nil
		})
		defer b.close(t)
		require.ErrorIs(t, b.Execute(t.Context(), fail), errBoom)
		add = false
		require.NoError(t, b.Reload(t.Context()))
		assert.Empty(t, b.state())
	})
}

// A route without traffic has no open circuit when its break is over, whether or not the pipeline belongs to a registry.
func TestCircuitState_BreakIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBreakers(t, func(b *registry.Builder) error { b.Add(newBreaker(nil)); return nil })
		defer b.close(t)
		l, reader := started(t, telemetry.Options{})
		alone := weir.Must(pipeline.Config{Name: "orders", Listener: l, Strategies: []pipeline.Strategy{newBreaker(nil)}}.Build())
		assert.Empty(t, b.state(), "no series before it was open")
		for _, each := range []struct {
			*pipeline.Pipeline
			state func() map[string]float64
		}{{b.Pipeline, b.state}, {alone, statesOf(t, reader)}} {
			require.ErrorIs(t, each.Execute(t.Context(), fail), errBoom)
			time.Sleep(time.Minute - 1)
			assert.Equal(t, isOpen, each.state())
			time.Sleep(time.Nanosecond)
			assert.Equal(t, isHalfOpen, each.state())
			require.ErrorIs(t, each.Execute(t.Context(), fail), errBoom)
			assert.Equal(t, isOpen, each.state(), "the probe has failed")
			time.Sleep(time.Minute)
			require.NoError(t, each.Execute(t.Context(), succeed))
			assert.Equal(t, isClosed, each.state())
		}
	})
}

// A circuit that is isolated or closed by hand reports nothing until it is called.
func TestCircuitState_ByHandWithoutCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		control := new(circuitbreaker.Control)
		b := newBreakers(t, func(b *registry.Builder) error { b.Add(newBreaker(control)); return nil })
		defer b.close(t)
		assert.Empty(t, b.state())
		control.Isolate()
		assert.Equal(t, isOpen, b.state())
		time.Sleep(time.Hour)
		assert.Equal(t, isOpen, b.state(), "it has no break")
		control.Reset()
		assert.Equal(t, isClosed, b.state())
	})
}

// A registry reports the outer pipeline only.
func TestInForce_CircuitInEmbeddedPipeline(t *testing.T) {
	l, reader := started(t, telemetry.Options{})
	build := func() *pipeline.Pipeline {
		inner := weir.Must(pipeline.Config{Name: "inner", Listener: l, Strategies: []pipeline.Strategy{newBreaker(nil)}}.Build())
		return weir.Must(pipeline.New("orders", pipeline.Embed(inner)))
	}
	require.ErrorIs(t, build().Execute(t.Context(), fail), errBoom)
	open := map[string]any{"pipeline.name": "inner", "strategy.name": "CircuitBreaker", "state": "open"}
	assert.EqualValues(t, 1, collect(t, reader)["weir.circuit_breaker.state"].at(t, open).value)
	l.Hooks().InForce(build())
	assert.Zero(t, collect(t, reader)["weir.circuit_breaker.state"].at(t, open).value)
}

// The three series of a circuit count for MaxSeries. Circuits beyond it are counted by state, until another circuit is
// forgotten.
func TestOptions_MaxSeriesOfCircuits(t *testing.T) {
	l, reader := started(t, telemetry.Options{MaxSeries: 10})
	reports := func(n int, event string) {
		source := pipeline.Source{Pipeline: fmt.Sprint("p", n), Strategy: "CB"}
		l.Hooks().OnEvent(t.Context(), pipeline.Event{Name: event, Severity: pipeline.SeverityWarning, Source: source})
	}
	for n := range 10 {
		reports(n, "OnCircuitOpened")
	}
	reports(8, "OnCircuitHalfOpened")
	reports(9, "OnCircuitClosed")
	states := func() (own int, overflow map[string]float64) {
		overflow = map[string]float64{}
		for _, p := range collect(t, reader)["weir.circuit_breaker.state"].points {
			if p.attributes["otel.metric.overflow"] == true {
				assert.Len(t, p.attributes, 2)
				overflow[p.attributes["state"].(string)] = p.value
			} else {
				own++
			}
		}
		return own, overflow
	}
	own, overflow := states()
	assert.Equal(t, 9, own)
	assert.Equal(t, map[string]float64{"closed": 1, "open": 5, "half_open": 1}, overflow)

	for n := range 10 {
		l.Hooks().Forget(pipeline.Source{Pipeline: fmt.Sprint("p", n)})
	}
	own, overflow = states()
	assert.Zero(t, own)
	assert.Empty(t, overflow)
	for n := range 3 {
		reports(n, "OnCircuitOpened")
	}
	own, overflow = states()
	assert.Equal(t, 9, own)
	assert.Empty(t, overflow)
}
