package timeout

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

// tests runs executions that ask or do not, and counts the ones that were not
// armed from the start.
func (h *habit) tests(n int, asks bool) (tests int) {
	for range n {
		if !h.armed() {
			h.learn(asks)
			tests++
		}
	}
	return tests
}

func TestHabitOfAskingIsLearnt(t *testing.T) {
	var h habit
	assert.Equal(t, 7, h.tests(1+2+4+8+16+32+64, true))
	assert.InDelta(t, 100, h.tests(6500, true), 1, "one in 65 from then on")
}

func TestHabitOfNotAskingCostsNothing(t *testing.T) {
	var h habit
	assert.Equal(t, 1000, h.tests(1000, false))
}

func TestHabitIsGivenUp(t *testing.T) {
	var h habit
	h.tests(1000, true)
	h.tests(longestRun, false)
	assert.Equal(t, 100, h.tests(100, false))
	h.learn(true)
	assert.Equal(t, 99, h.tests(100, false), "one that asks makes one that is armed")
}
