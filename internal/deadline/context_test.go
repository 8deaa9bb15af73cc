package deadline_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/weir-go/weir/internal/clock"
	"github.com/weir-go/weir/internal/deadline"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var errLate = errors.New("late")

func limited(parent context.Context) *deadline.Context {
	return deadline.New(parent, errLate, clock.Now()+time.Second)
}

func TestContext_Size(t *testing.T) {
	if got := unsafe.Sizeof(deadline.Context{}); unsafe.Sizeof(uintptr(0)) == 8 && got > 48 {
		t.Errorf("%d bytes, and the next class of the allocator is a third larger than 48", got)
	}
}

func TestErr_DoesNotReadTheClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := limited(t.Context())
		defer c.Finish()
		time.Sleep(time.Minute)
		assert.NoError(t, deadline.Err(c), "Done was not called")
		assert.Equal(t, context.DeadlineExceeded, c.Err())
		assert.Equal(t, context.DeadlineExceeded, deadline.Err(c), "once it has ended it has ended for both")
		assert.Equal(t, errLate, context.Cause(c))
	})
}

func TestErr_OfOthers(t *testing.T) {
	parent, cancel := context.WithCancel(t.Context())
	c := limited(limited(parent))
	defer c.Finish()
	assert.NoError(t, deadline.Err(parent))
	assert.NoError(t, deadline.Err(c))
	cancel()
	assert.Equal(t, context.Canceled, deadline.Err(parent))
	assert.Equal(t, context.Canceled, deadline.Err(c))
}

// The parent's deadline is later, so that its clock is not asked; but its end is.
func TestContext_Nested(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		outer := deadline.New(t.Context(), errors.New("long"), clock.Now()+time.Minute)
		inner := limited(outer)
		assert.NoError(t, inner.Err())
		outer.Finish()
		assert.Equal(t, context.Canceled, inner.Err())
		inner.Finish()
	})
}

func TestContext_DeadlineIsOnTheWallClock(t *testing.T) {
	c := limited(t.Context())
	defer c.Finish()
	before := time.Now()
	at, _ := c.Deadline()
	assert.WithinDuration(t, before.Add(time.Second), at, 100*time.Millisecond)
	assert.WithinDuration(t, before.Add(time.Second).Round(0), at.Round(0), 100*time.Millisecond)
	again, _ := c.Deadline()
	assert.True(t, at.Equal(again))
}

func TestAllocations(t *testing.T) {
	ctx := t.Context()
	var kept *deadline.Context
	require.EqualValues(t, 1, testing.AllocsPerRun(100, func() {
		kept = limited(ctx)
		_, _ = kept.Deadline()
		_, _ = kept.Err(), deadline.Err(kept)
		kept.Finish()
	}))
}
