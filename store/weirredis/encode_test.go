package weirredis

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/store"
)

func TestStatesCanBeReadAgain(t *testing.T) {
	grid := store.Grid{Version: 1_795_000_000_000_000, Kind: store.KindTokenBucket, Anchor: 1_794_000_000_000_001, Period: 1_000_003, Refill: 1 << 50}
	sliding := grid
	sliding.Kind, sliding.Refill, sliding.Segments = store.KindSlidingWindow, 0, 10
	for _, s := range []store.State{
		{Grid: grid, Line: 5, Missing: 1},
		{Grid: grid, Line: -5, Missing: 1 << 51, Held: 1 << 50},
		{Grid: sliding, Line: 12, Missing: 4, Taken: []store.Segment{{Line: 3, Permits: 1}, {Line: 12, Permits: 3}}},
	} {
		got, err := readState(stateBytes(s))
		require.NoError(t, err)
		require.Equal(t, s, got)
	}
	require.Empty(t, stateBytes(store.State{Grid: grid, Line: 5}), "a full state is not stored")
}

func FuzzReadState(f *testing.F) {
	g := store.Grid{Version: 1, Kind: store.KindSlidingWindow, Period: 1, Segments: 3}
	f.Add(stateBytes(store.State{Grid: g, Line: 1, Missing: 2, Taken: []store.Segment{{Line: 1, Permits: 2}}}))
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
			batch.Asks = append(batch.Asks, take(2))
		}
		if p.read(batch, answer) == nil {
			require.NotZero(t, batch.Outcome)
		}
	})
}
