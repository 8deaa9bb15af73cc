package handlerio

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
)

// A late call resets the timer while expire is still running. The calls of expire run one after the other, and close
// waits for all of them: otherwise the next request on the connection would get a deadline that has passed.
func TestCutoff_CloseWaitsForEveryExpire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var inside, calls atomic.Int32
		c := newCutoff(time.Now().Add(time.Second), func() {
			assert.EqualValues(t, 1, inside.Add(1), "calls of expire overlap")
			time.Sleep(time.Minute)
			inside.Add(-1)
			calls.Add(1)
		})
		assert.NoError(t, c.enter())
		time.Sleep(2 * time.Second)
		c.enterLate()
		time.Sleep(WriteGrace)
		c.close()
		assert.EqualValues(t, 2, calls.Load())
		assert.Zero(t, inside.Load())
	})
}
