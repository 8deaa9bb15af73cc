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
		control.Reset()
		assert.False(t, control.Isolated())
		assert.Equal(t, circuitbreaker.Closed, c.State())
		c.times(t, 2, succeed)
		assert.Equal(t, []string{
			"OnCircuitOpened Error 0s <nil>", "opened closed>isolated <nil>",
			"OnCircuitClosed Information 0s <nil>", "closed isolated>closed <nil>",
		}, c.log)
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
		control.Reset()
		assert.Equal(t, circuitbreaker.Closed, newCircuit(t, o).State())
		one.times(t, 1, succeed)
		other.times(t, 1, succeed)
		later.times(t, 1, succeed)
	})
}
