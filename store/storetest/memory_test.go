package storetest

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/rate"
	"github.com/weir-go/weir/store/backend"
)

func definition(m *Memory, l rate.Schedule) *backend.Definition {
	return backend.NewDefinition("it", l, m.Now())
}

// took asks for one permit.
func took(ctx context.Context, m *Memory, d *backend.Definition) (granted bool, err error) {
	b := &backend.Batch{Definition: d, Requests: []backend.Request{take(1)}}
	err = m.Decide(ctx, []*backend.Batch{b})
	return err == nil && b.Granted[0] == 1, err
}

func TestMemory_Fail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := NewMemory()
		d := definition(m, slowLimits(2))
		away := errors.New("away")
		m.Fail(away)
		b := &backend.Batch{Definition: d, Requests: []backend.Request{take(1)}}
		assert.ErrorIs(t, m.Decide(t.Context(), []*backend.Batch{b}), away)
		assert.Equal(t, &backend.Batch{Definition: d, Requests: []backend.Request{take(1)}}, b, "an error answers nothing")
		assert.ErrorIs(t, m.Listen(t.Context(), nil, nil), away)
		m.Fail(nil)
		m.LoseAnswers(true)
		granted, err := took(t.Context(), m, d)
		assert.Error(t, err)
		assert.False(t, granted)
		m.LoseAnswers(false)
		granted, _ = took(t.Context(), m, d)
		assert.True(t, granted)
		granted, err = took(t.Context(), m, d)
		require.NoError(t, err)
		assert.False(t, granted, "what was lost was done")
		assert.Equal(t, 4, m.Calls("Decide"))
		assert.Equal(t, 5, m.Calls())
	})
}

func TestMemory_Delay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := NewMemory()
		begin := time.Now()
		m.Delay(3 * time.Second)
		granted, _ := took(t.Context(), m, definition(m, slowLimits(2)))
		assert.True(t, granted)
		assert.Equal(t, 3*time.Second, time.Since(begin))
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		_, err := took(ctx, m, definition(m, slowLimits(2)))
		assert.ErrorIs(t, err, context.DeadlineExceeded)
		assert.Equal(t, 5*time.Second, time.Since(begin))
		m.Delay(0)
		m.Stall(true)
		time.AfterFunc(time.Minute, func() { m.Stall(false) })
		_, _, err = m.Load(t.Context(), "it")
		require.NoError(t, err)
		assert.Equal(t, 65*time.Second, time.Since(begin))
		m.Stall(true)
		ctx, cancel = context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, _, err = m.Load(ctx, "it")
		assert.ErrorIs(t, err, context.DeadlineExceeded)
	})
}

func TestMemory_Step(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := NewMemory()
		d := definition(m, slowLimits(1))
		granted, _ := took(t.Context(), m, d)
		assert.True(t, granted)
		m.Step(-24 * time.Hour)
		granted, _ = took(t.Context(), m, d)
		assert.False(t, granted, "what is missing stays missing")
		time.Sleep(time.Hour)
		granted, _ = took(t.Context(), m, d)
		assert.True(t, granted, "no caller waits for the old time")
		m.Step(time.Hour)
		granted, _ = took(t.Context(), m, d)
		assert.True(t, granted)
		held := definition(m, concurrency(1))
		a := leaseRequest(held, "", "a", 1, time.Minute)
		require.NoError(t, m.Acquire(t.Context(), []*backend.LeaseRequest{a}))
		m.Step(-time.Hour)
		b := leaseRequest(held, "", "b", 1, time.Minute)
		require.NoError(t, m.Acquire(t.Context(), []*backend.LeaseRequest{b}))
		assert.Equal(t, time.Minute.Microseconds(), b.NextExpiry, "no lease ends later than its TTL from now")
	})
}

func TestMemory_Forget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := NewMemory()
		d := definition(m, slowLimits(1))
		_, err := m.Define(t.Context(), 0, d)
		require.NoError(t, err)
		_, _ = took(t.Context(), m, d)
		require.NoError(t, m.Acquire(t.Context(), []*backend.LeaseRequest{leaseRequest(definition(m, concurrency(1)), "", "a", 1, time.Minute)}))
		assert.Equal(t, 2, m.Keys())
		time.Sleep(time.Hour)
		assert.Zero(t, m.Keys(), "nothing is held, and the window is full")
		_, _ = took(t.Context(), m, d)
		m.Forget()
		assert.Zero(t, m.Keys())
		found, _, err := m.Load(t.Context(), "it")
		require.NoError(t, err)
		assert.Nil(t, found)
	})
}

func TestMemory_DropsFullKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := NewMemory()
		d := definition(m, slowLimits(1))
		for i := range 2000 {
			require.NoError(t, m.Decide(t.Context(), []*backend.Batch{{Definition: d, Key: string(rune(i)), Requests: []backend.Request{take(1)}}}))
		}
		before := len(m.states)
		time.Sleep(time.Hour)
		for i := range 3000 {
			require.NoError(t, m.Decide(t.Context(), []*backend.Batch{{Definition: d, Key: string(rune(5000 + i)), Requests: []backend.Request{take(1)}}}))
		}
		assert.Less(t, len(m.states), before+2000)
	})
}

func TestMemory_NoListen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := NewMemory()
		ended := make(chan error, 1)
		var heard []backend.Notice
		go func() {
			ended <- m.Listen(t.Context(), func() {}, func(n backend.Notice) { heard = append(heard, n) })
		}()
		synctest.Wait()
		d := definition(m, slowLimits(1))
		_, err := m.Define(t.Context(), 0, d)
		require.NoError(t, err)
		synctest.Wait()
		assert.Equal(t, []backend.Notice{{Name: "it"}}, heard)
		m.NoListen(true)
		assert.ErrorIs(t, <-ended, errDisconnected)
		assert.ErrorIs(t, m.Listen(t.Context(), nil, nil), errors.ErrUnsupported)
		m.NoListen(false)
		ctx, cancel := context.WithCancel(t.Context())
		assert.ErrorIs(t, m.Listen(ctx, cancel, nil), context.Canceled)
	})
}
