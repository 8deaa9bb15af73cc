package exchange_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/transport/internal/exchange"
)

// Random sequences of calls against the table in the documentation of Exchange.
func TestExchange_States(t *testing.T) {
	for range 2000 {
		var begun, running int
		var processed, settled bool
		var ended []int
		repeat, overlap := rand.IntN(2) == 0, rand.IntN(2) == 0
		x := exchange.Exchange[int]{Name: "x", Repeat: func() bool { return repeat }, Overlap: overlap}
		for range 12 {
			switch call := rand.IntN(8); {
			case call < 4:
				number, err := x.Begin()
				want := ""
				switch {
				case settled:
					want = "x has been answered"
				case running > 0 && !(repeat && overlap):
					want = "x is being sent, and must not be sent twice at the same time"
				case running == 0 && processed && !repeat:
					want = "x has been sent, and must not be sent again"
				}
				if want != "" {
					require.EqualError(t, err, want)
					continue
				}
				require.NoError(t, err)
				require.Equal(t, begun, number)
				begun++
				running++
			case call < 7 && running > 0:
				running--
				effect := rand.IntN(3) > 0
				processed = processed || effect
				if err := x.End(call, effect); settled {
					require.True(t, exchange.IsRefusal(err))
				} else {
					require.NoError(t, err)
					ended = append(ended, call)
				}
			case call == 7 && rand.IntN(3) == 0:
				require.Equal(t, !settled, x.Settle())
				settled = true
			}
			require.Equal(t, begun, x.Begun())
			require.ElementsMatch(t, ended, x.Ended())
		}
	}
}

// An attempt that panicked has no outcome, and may have had an effect.
func TestExchange_Abort(t *testing.T) {
	x := exchange.Exchange[int]{Name: "x", Repeat: func() bool { return false }}
	_, err := x.Begin()
	require.NoError(t, err)
	x.Abort()
	_, err = x.Begin()
	assert.EqualError(t, err, "x has been sent, and must not be sent again")
	assert.Empty(t, x.Ended())
}

func TestExchange_SettleWaits(t *testing.T) {
	for wait, took := range map[bool]time.Duration{false: time.Second, true: time.Minute} {
		synctest.Test(t, func(t *testing.T) {
			x := exchange.Exchange[int]{Wait: wait}
			_, err := x.Begin()
			require.NoError(t, err)
			require.True(t, x.Borrow())
			time.AfterFunc(time.Second, x.Return)
			time.AfterFunc(time.Minute, func() { _ = x.End(1, true) })
			began := time.Now()
			x.Settle()
			assert.Equal(t, took, time.Since(began), "of what is borrowed, and of the attempt if wait is %v", wait)
			assert.False(t, x.Borrow())
			time.Sleep(time.Minute)
		})
	}
}

func TestIsRefusal(t *testing.T) {
	var x exchange.Exchange[int]
	x.Settle()
	_, err := x.Begin()
	assert.True(t, exchange.IsRefusal(fmt.Errorf("wrapped: %w", err)))
	assert.False(t, exchange.IsRefusal(errors.New("another")))
	assert.ErrorIs(t, err, pipeline.ErrRejected)
	assert.True(t, pipeline.NotCalled(err))
	retryable, known := pipeline.Retryable(err)
	assert.True(t, known && !retryable)
}
