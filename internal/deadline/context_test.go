package deadline_test

import (
	"context"
	"errors"
	"fmt"
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

var late = &deadline.Limit{After: time.Second, Cause: errors.New("late")}

func limited(parent context.Context) *deadline.Context {
	return deadline.New(parent, late, clock.Now()+late.After)
}

func TestContext_Size(t *testing.T) {
	if got := unsafe.Sizeof(deadline.Context{}); unsafe.Sizeof(uintptr(0)) == 8 && got > 48 {
		t.Errorf("%d bytes, and the next class of the allocator is a third larger than 48", got)
	}
}

func TestContext_EarlyDoesNotReadTheClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := limited(t.Context())
		defer c.Finish()
		time.Sleep(time.Minute)
		assert.NoError(t, c.Early().Err(), "Done was not called")
		assert.Equal(t, context.DeadlineExceeded, c.Err())
		assert.Equal(t, context.DeadlineExceeded, c.Early().Err(), "once it has ended it has ended for both")
	})
}

func TestContext_EarlyIsTheSameOtherwise(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		type key struct{}
		parent, cancel := context.WithCancelCause(context.WithValue(t.Context(), key{}, 1))
		c := limited(parent)
		defer c.Finish()
		e := c.Early()
		theirs, _ := c.Deadline()
		ours, ok := e.Deadline()
		assert.True(t, ok)
		assert.Equal(t, theirs, ours)
		assert.Equal(t, 1, e.Value(key{}))
		assert.Equal(t, fmt.Sprint(c), fmt.Sprint(e))
		assert.Same(t, c, deadline.Full(e))
		assert.Same(t, c, deadline.Full(c))
		assert.Equal(t, parent, deadline.Full(parent))

		child, stop := context.WithCancel(e)
		defer stop()
		boom := errors.New("boom")
		cancel(boom)
		assert.Equal(t, context.Canceled, e.Err())
		assert.Equal(t, boom, context.Cause(e))
		<-child.Done()
		assert.Equal(t, boom, context.Cause(child))
		assert.Equal(t, c.Done(), e.Done())
	})
}

func TestContext_EarlyOnceArmed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := limited(t.Context())
		defer c.Finish()
		<-c.Early().Done()
		assert.Equal(t, context.DeadlineExceeded, c.Early().Err())
		assert.Equal(t, late.Cause, context.Cause(c.Early()))
	})
}

func TestNowIn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := clock.Now()
		c := limited(t.Context())
		defer c.Finish()
		endless := deadline.New(t.Context(), &deadline.Limit{After: 1<<63 - 1, Cause: late.Cause}, 1<<63-1)
		defer endless.Finish()
		time.Sleep(time.Second / 2)
		assert.Equal(t, began, deadline.NowIn(c.Early()), "not armed, so no time goes by")
		for name, ctx := range map[string]context.Context{"full": c, "other": t.Context(), "endless": endless.Early()} {
			assert.Equal(t, began+time.Second/2, deadline.NowIn(ctx), name)
		}
		_ = c.Early().Done()
		assert.Equal(t, began+time.Second/2, deadline.NowIn(c.Early()))
	})
}

func TestInstant(t *testing.T) {
	type strategy struct{ deadline.Instant }
	type wrapper struct {
		*strategy
		_ []int // not comparable
	}
	is, isNot := &strategy{}, &strategy{}
	is.Instant, isNot.Instant = deadline.InstantIf(true, is), deadline.InstantIf(false, isNot)
	assert.True(t, deadline.IsInstant(is))
	for _, v := range []any{isNot, new(strategy), *is, wrapper{strategy: is}, &wrapper{strategy: is}, 1, nil} {
		assert.False(t, deadline.IsInstant(v), "%T", v)
	}
}

// The parent's deadline is later, so that its clock is not asked; but its end is.
func TestContext_Nested(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		long := &deadline.Limit{After: time.Minute, Cause: errors.New("long")}
		outer := deadline.New(t.Context(), long, clock.Now()+long.After)
		inner := limited(outer)
		assert.NoError(t, inner.Err())
		outer.Finish()
		assert.Equal(t, context.Canceled, inner.Err())
		inner.Finish()
	})
}

func TestEndsBy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { endsBy(t) })
	endsBy(t) // with a monotonic clock
}

func endsBy(t *testing.T) {
	t.Helper()
	assert.False(t, deadline.EndsBy(t.Context(), 1<<62))
	now := clock.Now()
	c := deadline.New(t.Context(), late, now+time.Minute)
	defer c.Finish()
	at, _ := c.Deadline()
	for name, ctx := range map[string]context.Context{"ours": c, "standard": until(t, at), "wall clock": until(t, at.Round(0))} {
		assert.True(t, deadline.EndsBy(ctx, now+time.Minute+time.Second), name)
		assert.False(t, deadline.EndsBy(ctx, now+time.Minute-time.Second), name)
	}
	for name, ctx := range map[string]context.Context{"ours": c, "standard": until(t, at)} {
		assert.True(t, deadline.EndsBy(ctx, now+time.Minute), name)
		assert.False(t, deadline.EndsBy(ctx, now+time.Minute-1), name)
	}
}

func until(t *testing.T, at time.Time) context.Context {
	ctx, cancel := context.WithDeadline(t.Context(), at)
	t.Cleanup(cancel)
	return ctx
}

func TestContext_DeadlineIsOnTheWallClock(t *testing.T) {
	c := limited(t.Context())
	defer c.Finish()
	before := time.Now()
	at, _ := c.Deadline()
	assert.WithinDuration(t, before.Add(late.After), at, 100*time.Millisecond)
	assert.WithinDuration(t, before.Add(late.After).Round(0), at.Round(0), 100*time.Millisecond)
	again, _ := c.Deadline()
	assert.Equal(t, at, again)
}

func TestAllocations(t *testing.T) {
	ctx := t.Context()
	var kept *deadline.Context
	require.EqualValues(t, 1, testing.AllocsPerRun(100, func() {
		kept = limited(ctx)
		_, _ = kept.Deadline()
		_, _ = kept.Err(), kept.Early().Err()
		kept.Finish()
	}))
}
