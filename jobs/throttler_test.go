package jobs

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var onOrders = MustDeclare(Throttle{Limits: []Limit{{Mutex: "orders", Key: "{order}"}}})

type orderArgs struct {
	Order int `json:"order"`
}

func TestMutex(t *testing.T) {
	w := newWorld(t)
	th := w.throttler(Options{HandOver: -1})
	first := start(th, w.job("a", orderArgs{1}), onOrders).running(t)
	other := start(th, w.job("a", orderArgs{2}), onOrders).running(t)
	second := start(th, w.job("b", orderArgs{1}), onOrders)
	second.throttled(t)

	info, err := th.Inspect(t.Context(), Ref{Mutex, "orders", "1"})
	require.NoError(t, err)
	assert.Equal(t, 1, info.Used)
	assert.Equal(t, first.ID, info.Holders[0].Job)
	assert.Equal(t, second.ID, info.Waiters[0].Job)

	require.NoError(t, first.end(nil))
	th.flush()
	again := start(th, w.rerun(second.JobRow), onOrders).running(t)
	fence, ok := Fence(again.ctx)
	assert.True(t, ok)
	before, _ := Fence(first.ctx)
	assert.Greater(t, fence, before)
	require.NoError(t, again.end(nil))
	require.NoError(t, other.end(nil))
	th.flush()
	assert.Zero(t, w.int(`select count(*) from "weir".jobs_holders`))
	assert.Zero(t, w.int(`select count(*) from "weir".jobs_waiters`))
}

func TestFixedWindow(t *testing.T) {
	w := newWorld(t)
	th := w.throttler(Options{})
	require.NoError(t, th.SetFixedWindow(t.Context(), "github", FixedWindowOptions{Limit: 2, Interval: 1000 * time.Hour}))
	d := MustDeclare(Throttle{Limits: []Limit{{FixedWindow: "github"}}})
	start(th, w.job("a", nil), d).running(t).end(nil)
	start(th, w.job("a", nil), d).running(t).end(nil)
	third := start(th, w.job("a", nil), d).throttled(t)
	fourth := start(th, w.job("a", nil), d).throttled(t)
	fifth := start(th, w.job("a", nil), d).throttled(t)
	assert.InDelta(t, third.Duration, fourth.Duration, float64(time.Second))
	assert.InDelta(t, 1000*time.Hour, fifth.Duration-fourth.Duration, float64(time.Second))
}
