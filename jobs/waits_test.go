package jobs

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
)

// A waiter with a least delay is not brought back before it.
func TestMinDelayWhenTheTurnComesSooner(t *testing.T) {
	w := newWorld(t)
	th := w.throttler(Options{HandOver: -1})
	d := weir.Must(Declare(Throttle{MinDelay: time.Minute, Limits: []Limit{{Mutex: "m"}}}))
	first := start(th, w.Job("a", nil), onMutex).running(t)
	patient := start(th, w.Job("a", nil), d)
	patient.throttled(t)
	w.Exec(`update RIVER set state = 'scheduled', scheduled_at = now() + interval '1 minute' where id = $1`, patient.ID)
	require.NoError(t, first.end(nil))
	th.flush()
	assert.Zero(t, w.Int(`select count(*) from RIVER where state = 'available'`))
	assert.EqualValues(t, 1, w.Int(`select count(*) from "weir".jobs_waiters where wake > now() + interval '50 seconds'`))
}

// A holder that takes much longer than others did is expected to take longer the longer it takes.
func TestSlots_OverdueHolder(t *testing.T) {
	s := &slots{max: 1, measuredHold: 10 * ms, owners: map[string]int64{"a": 0}}
	asks, now := 0, int64(0)
	for ; now < 3600*1000*ms; asks++ {
		now += max(s.expectedWait(1, now, true), ms)
	}
	assert.Less(t, asks, 30)
}

// A holder of which nothing is known but how long it has held its slot is expected to hold it for as long again.
func TestSlots_HolderWithoutMeasuredHold(t *testing.T) {
	asks := 0
	for now := int64(ms); now < 30*second; asks++ {
		s := &slots{max: 1, owners: map[string]int64{"a": 0}}
		now += max(s.expectedWait(1, now, true), ms)
	}
	assert.LessOrEqual(t, asks, 14)
}

// For how long an owner has held a slot is what counts for those who wait, not how long its last job took.
func TestHoldOfABatchIsLearned(t *testing.T) {
	w := newWorld(t)
	th := w.throttler(Options{HandOver: -1})
	limit := func(mode Mode) *Declaration {
		return weir.Must(Declare(Throttle{Limits: []Limit{{Mutex: "m", Owner: "b", Mode: mode}}}))
	}
	require.NoError(t, start(th, w.Job("begin", nil), limit(Acquire)).running(t).end(nil))
	w.Exec(`update "weir".jobs_holders set acquired = acquired - interval '1 hour'`)
	require.NoError(t, start(th, w.Job("part", nil), limit(AcquireAndRelease)).running(t).end(nil))
	th.flush()
	require.NoError(t, start(th, w.Job("end", nil), limit(Release)).running(t).end(nil))
	th.flush()
	info, err := th.Inspect(t.Context(), Ref{Type: Mutex, Name: "m"})
	require.NoError(t, err)
	assert.GreaterOrEqual(t, info.MeanHold, time.Hour)
}
