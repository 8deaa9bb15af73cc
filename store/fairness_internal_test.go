package store

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/rate"
	"github.com/weir-go/weir/store/backend"
)

// The answers to an instance's calls can come in any order. However they come, the instance's own permits are not taken for
// a rival's, and a rival's permits are noticed as soon as each call that was sent before has been answered.
func TestFairness_AnswersInAnyOrder(t *testing.T) {
	type event struct {
		at time.Time
		do func()
	}
	const slowest = 100 * time.Millisecond
	for name, limits := range map[string]rate.Schedule{
		"bucket":         {Kind: rate.TokenBucket, Permits: 1000, Period: 10_000, Refill: 2},
		"window":         {Kind: rate.FixedWindow, Permits: 1000, Period: 1_000_000},
		"sliding window": {Kind: rate.SlidingWindow, Permits: 1000, Period: 100_000, Segments: 10},
	} {
		for _, rival := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/rival=%v", name, rival), func(t *testing.T) {
				for seed := range uint64(20) {
					random := rand.New(rand.NewPCG(seed, 0))
					begun := time.UnixMicro(1_000_000_000_000)
					d := backend.NewDefinition("it", limits, begun.UnixMicro())
					state := d.Full(begun.UnixMicro())
					var f fairness
					f.startWaiting(begun)
					pending := map[int]time.Time{}
					var events []event
					var rivalCame time.Time
					for i := range 1000 {
						sent := begun.Add(time.Duration(i)*5*time.Millisecond + time.Duration(random.IntN(5000))*time.Microsecond)
						decided := sent.Add(time.Duration(random.Int64N(int64(slowest / 2))))
						answered := decided.Add(time.Duration(random.Int64N(int64(slowest / 2))))
						var o observation
						events = append(events, event{sent, func() { pending[i] = sent }}, event{decided, func() {
							n := 1 + random.Int64N(3)
							granted := []int64{0}
							state = d.Advanced(state, decided.UnixMicro()) // a copy
							d.Decide(&state, decided.UnixMicro(), []backend.Request{{Min: n, Max: n}}, granted)
							o = observation{def: d, state: state, now: decided.UnixMicro(), sent: sent, own: max(granted[0], 0), rejected: granted[0] < 0}
						}}, event{answered, func() {
							delete(pending, i)
							for _, other := range pending {
								if o.pending.IsZero() || other.Before(o.pending) {
									o.pending = other
								}
							}
							f.lastWaited = answered
							f.observe(o, answered)
						}})
						if i == 500 && rival {
							rivalCame = sent
							events = append(events, event{sent, func() {
								state = d.Advanced(state, sent.UnixMicro())
								d.Decide(&state, sent.UnixMicro(), []backend.Request{{Min: 5, Max: 5}}, []int64{0})
							}})
						}
					}
					slices.SortStableFunc(events, func(a, b event) int { return a.at.Compare(b.at) })
					noticed := false
					for _, e := range events {
						e.do()
						has := f.hasRivals(e.at)
						require.False(t, has && rivalCame.IsZero(), "seed %d: no rival", seed)
						require.False(t, has && e.at.Before(rivalCame), "seed %d: too early", seed)
						noticed = noticed || has
					}
					require.Equal(t, rival, noticed, "seed %d", seed)
				}
			})
		}
	}
}

// If the server's clock was set back, later answers are not taken for late ones.
func TestFairness_ServerClockSetBack(t *testing.T) {
	d := &backend.Definition{Schedule: rate.Schedule{Kind: rate.FixedWindow, Permits: 100, Period: 1_000_000}}
	begun := time.Now()
	var r fairness
	r.startWaiting(begun)
	for i, now := range []int64{3_600_000_000, 3_600_000_001, 10, 20} {
		at := begun.Add(time.Duration(i) * time.Millisecond)
		r.observe(observation{def: d, state: rate.State{Missing: int64(10 * i)}, now: now, sent: at, own: 1}, at)
		require.Equal(t, now, r.observed.now)
	}
	require.True(t, r.hasRivals(begun))
}

// Rivals can be known before the key has an answer.
func TestAnswerState_WithoutDefinition(t *testing.T) {
	var k answerState
	require.False(t, k.available(1, time.Now()))
}
