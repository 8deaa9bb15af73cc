package store

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/store/backend"
)

// The answers to two calls of one instance can come in either order. The permits of the other call are not taken for a
// rival's; permits that stay unexplained are.
func TestFairness_OwnCallsAreNoRivals(t *testing.T) {
	d := &backend.Definition{Limits: backend.Limits{Kind: backend.KindFixedWindow, Permits: 100, Period: int64(time.Minute / time.Microsecond)}}
	begun := time.Now()
	at := func(ms int) time.Time { return begun.Add(time.Duration(ms) * time.Millisecond) }
	see := func(r *fairness, missing, now int64, sent int) {
		r.observe(observation{def: d, state: backend.State{Missing: missing}, now: now, sent: at(sent), own: 1}, at(sent+2))
	}
	var r fairness
	r.startWaiting(at(0))
	see(&r, 1, 1000, 0)
	see(&r, 3, 3000, 10) // the last of two
	require.False(t, r.hasRivals(at(12)))
	see(&r, 2, 2000, 10) // the first of two
	see(&r, 4, 4000, 20)
	require.False(t, r.hasRivals(at(22)))
	see(&r, 6, 6000, 30)
	see(&r, 7, 7000, 40)
	require.True(t, r.hasRivals(at(42)), "another instance has taken one")
}

// If the server's clock was set back, later answers are not taken for late ones.
func TestFairness_ServerClockSetBack(t *testing.T) {
	d := &backend.Definition{Limits: backend.Limits{Kind: backend.KindFixedWindow, Permits: 100, Period: 1_000_000}}
	begun := time.Now()
	var r fairness
	r.startWaiting(begun)
	for i, now := range []int64{3_600_000_000, 3_600_000_001, 10, 20} {
		at := begun.Add(time.Duration(i) * time.Millisecond)
		r.observe(observation{def: d, state: backend.State{Missing: int64(10 * i)}, now: now, sent: at, alone: true, own: 1}, at)
		require.Equal(t, now, r.observed.now)
	}
	require.True(t, r.hasRivals(begun))
}

// Rivals can be known before the key has an answer.
func TestAnswerState_WithoutDefinition(t *testing.T) {
	var k answerState
	require.False(t, k.available(1, time.Now()))
}
