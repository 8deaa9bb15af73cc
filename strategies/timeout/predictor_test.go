package timeout

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

// tests runs executions that call Done or do not, and returns how many of them were tests.
func (p *donePredictor) tests(n int, called bool) (tests int) {
	for range n {
		if !p.predictsDone() {
			p.learn(called)
			tests++
		}
	}
	return tests
}

func TestDonePredictor_Called(t *testing.T) {
	var p donePredictor
	assert.Equal(t, 7, p.tests(1+2+4+8+16+32+64, true))
	assert.InDelta(t, 100, p.tests(6500, true), 1, "one in 65 from then on")
}

func TestDonePredictor_NotCalled(t *testing.T) {
	var p donePredictor
	assert.Equal(t, 1000, p.tests(1000, false))
}

func TestDonePredictor_Change(t *testing.T) {
	var p donePredictor
	p.tests(1000, true)
	p.tests(longestInterval, false)
	assert.Equal(t, 100, p.tests(100, false))
	p.learn(true)
	assert.Equal(t, 99, p.tests(100, false), "one call of Done makes one prediction")
}
