package attempts_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/weir-go/weir/transport/internal/attempts"
)

func TestAttempts(t *testing.T) {
	yes, no := func() bool { return true }, func() bool { return false }
	synctest.Test(t, func(t *testing.T) {
		var a attempts.Attempts
		assert.False(t, a.Ran())
		assert.True(t, a.Begin(no), "the first one")
		assert.True(t, a.Ran())
		assert.False(t, a.Begin(yes), "while it runs")
		a.End()
		assert.False(t, a.Begin(no), "it cannot run again")
		assert.True(t, a.Begin(yes))
		go func() {
			time.Sleep(time.Second)
			assert.False(t, a.Begin(yes), "it is over")
			a.End()
		}()
		began := time.Now()
		a.Finish()
		assert.Equal(t, time.Second, time.Since(began))
		assert.False(t, a.Begin(yes), "it is over")
	})
}

func TestAttempts_NoAllocation(t *testing.T) {
	var a attempts.Attempts
	n := 0
	assert.Zero(t, testing.AllocsPerRun(100, func() {
		if a.Begin(func() bool { n++; return true }) {
			a.End()
		}
	}))
	assert.Equal(t, 100, n)
}
