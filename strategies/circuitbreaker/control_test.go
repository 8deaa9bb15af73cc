package circuitbreaker_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/strategies/circuitbreaker"
)

func controlled() (circuitbreaker.Options, *circuitbreaker.Control) {
	o := atOnce(1)
	o.Control = new(circuitbreaker.Control)
	return o, o.Control
}

func TestControl_IsolateAndClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, control := controlled()
		c := newCircuit(t, o)
		c.times(t, 1, succeed)
		control.Isolate()
		control.Isolate()
		assert.True(t, control.Isolated())
		assert.Equal(t, circuitbreaker.Statistics{State: circuitbreaker.Isolated}, c.Statistics(), "at once")
		assert.Empty(t, c.log, "but told by an execution")
		open := c.rejects(t, circuitbreaker.Isolated, 0)
		require.EqualError(t, open, "circuitbreaker: orders/CircuitBreaker: the circuit is isolated")
		_, known := pipeline.RetryAfter(open)
		assert.False(t, known)
		time.Sleep(time.Hour)
		c.rejects(t, circuitbreaker.Isolated, 0)
		control.Close()
		assert.False(t, control.Isolated())
		assert.Equal(t, circuitbreaker.Closed, c.State())
		c.times(t, 2, succeed)
		assert.Equal(t, []string{
			"OnCircuitOpened Error 0s <nil>", "opened closed>isolated <nil>",
			"OnCircuitClosed Information 0s <nil>", "closed isolated>closed <nil>",
		}, c.log)
	})
}

func TestControl_CloseAfterFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, control := controlled()
		c := afterTheBreak(t, o)
		probe := c.start(t.Context())
		control.Close()
		c.times(t, 1, succeed)
		assert.Equal(t, "closed half_open>closed <nil>", c.log[len(c.log)-1])
		require.Equal(t, errBoom, probe.finish(fail))
		assert.Equal(t, circuitbreaker.Closed, c.State(), "the probe has nothing to decide")
	})
}

func TestControl_CloseResetsTheCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, control := controlled()
		o.ConsecutiveFailures = 2
		c := newCircuit(t, o)
		c.times(t, 1, fail)
		control.Close()
		assert.Zero(t, c.Statistics().ConsecutiveFailures)
		c.times(t, 1, fail)
		assert.Equal(t, circuitbreaker.Closed, c.State())
		assert.Empty(t, c.log)
	})
}

// An order is not undone by an outcome that comes after it.
func TestControl_OrderBeforeAnOutcome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, control := controlled()
		c := newCircuit(t, o)
		running := c.start(t.Context())
		control.Close()
		require.Equal(t, errBoom, running.finish(fail))
		assert.Equal(t, circuitbreaker.Closed, c.State())
		assert.Empty(t, c.log)

		c = afterTheBreak(t, o)
		probe := c.start(t.Context())
		control.Isolate()
		require.NoError(t, probe.finish(succeed))
		assert.Equal(t, circuitbreaker.Isolated, c.State())
		assert.Equal(t, "opened half_open>isolated <nil>", c.log[len(c.log)-1], "the probe carried it out")
		c.rejects(t, circuitbreaker.Isolated, 0)
	})
}

func TestControl_Shared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, control := controlled()
		one, other := newCircuit(t, o), newCircuit(t, o)
		control.Isolate()
		one.rejects(t, circuitbreaker.Isolated, 0)
		other.rejects(t, circuitbreaker.Isolated, 0)
		later := newCircuit(t, o)
		assert.Equal(t, circuitbreaker.Isolated, later.State(), "also what is made later, as by a reload")
		later.rejects(t, circuitbreaker.Isolated, 0)
		assert.Equal(t, "opened closed>isolated <nil>", later.log[1])
		control.Close()
		assert.Equal(t, circuitbreaker.Closed, newCircuit(t, o).State())
		one.times(t, 1, succeed)
		other.times(t, 1, succeed)
		later.times(t, 1, succeed)
	})
}

func TestControl_SeveralOrders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, control := controlled()
		c := newCircuit(t, o)
		control.Isolate()
		control.Close()
		c.times(t, 1, succeed)
		assert.Empty(t, c.log)
		control.Isolate()
		c.rejects(t, circuitbreaker.Isolated, 0)
		control.Close()
		control.Isolate()
		c.rejects(t, circuitbreaker.Isolated, 0)
		assert.Len(t, c.log, 2)
	})
}
