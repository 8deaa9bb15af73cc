package weirredis

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/store/backend"
)

func TestState_RoundTrip(t *testing.T) {
	schedule := backend.Schedule{Version: 1_795_000_000_000_000, Kind: backend.KindTokenBucket, Anchor: 1_794_000_000_000_001, Period: 1_000_003, Refill: 1 << 50}
	sliding := schedule
	sliding.Kind, sliding.Refill, sliding.Segments = backend.KindSlidingWindow, 0, 10
	for _, s := range []backend.State{
		{Schedule: schedule, Tick: 5, Missing: 1},
		{Schedule: schedule, Tick: -5, Missing: 1 << 51, RefundFloor: 1 << 50},
		{Schedule: sliding, Tick: 12, Missing: 4, Taken: []backend.Segment{{Tick: 3, Permits: 1}, {Tick: 12, Permits: 3}}},
	} {
		got, err := readState(stateBytes(s))
		require.NoError(t, err)
		require.Equal(t, s, got)
	}
	require.Empty(t, stateBytes(backend.State{Schedule: schedule, Tick: 5}), "a full state is not stored")
}

func FuzzReadState(f *testing.F) {
	g := backend.Schedule{Version: 1, Kind: backend.KindSlidingWindow, Period: 1, Segments: 3}
	f.Add(stateBytes(backend.State{Schedule: g, Tick: 1, Missing: 2, Taken: []backend.Segment{{Tick: 1, Permits: 2}}}))
	f.Add("")
	f.Fuzz(func(t *testing.T, s string) {
		state, err := readState(s)
		if err == nil {
			require.Positive(t, state.Period)
		}
	})
}

func FuzzReadAnswer(f *testing.F) {
	b := &Backend{scripts: newScripts(serverClock), names: names{prefix: "weir"}}
	d := slowBucket(5)
	p, err := b.plan(d)
	require.NoError(f, err)
	f.Add(string(make([]byte, 24))+"\xfd12345678", true)
	f.Add("", false)
	f.Fuzz(func(t *testing.T, answer string, two bool) {
		batch := takeOne(d, "")
		if two {
			batch.Requests = append(batch.Requests, take(2))
		}
		if p.readAnswer(batch, answer) == nil {
			require.NotZero(t, batch.Outcome)
		}
	})
}
