package circuitbreaker_test

import (
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"

	"github.com/weir-go/weir/strategies/circuitbreaker"
)

func controlled() (circuitbreaker.Options, *circuitbreaker.Control) {
	o := atOnce(1)
	o.Control = new(circuitbreaker.Control)
	return o, o.Control
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
