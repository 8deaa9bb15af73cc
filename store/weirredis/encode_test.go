package weirredis

import (
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/rate"
	"github.com/weir-go/weir/store/backend"
)

func TestState_RoundTrip(t *testing.T) {
	const version = 1_795_000_000_000_000
	bucket := rate.Schedule{Kind: rate.TokenBucket, Anchor: 1_794_000_000_000_001, Period: 1_000_003, Refill: 1 << 50}
	sliding := bucket
	sliding.Kind, sliding.Refill, sliding.Segments = rate.SlidingWindow, 0, 10
	for _, s := range []backend.State{
		{Version: version, Schedule: bucket, State: rate.State{Line: 5, Missing: 1}},
		{Version: version, Schedule: bucket, State: rate.State{Line: -5, Missing: 1 << 51, Floor: 1 << 50}},
		{Version: version, Schedule: bucket, State: rate.State{Line: 5, Refunded: 3}},
		{Version: version, Schedule: sliding, State: rate.State{Line: 12, Missing: 4, Segments: []rate.Segment{
			{Line: 3, Serial: 3, Permits: 1}, {Line: 12, Serial: 12, Permits: 3},
		}}},
	} {
		got, err := readState(stateBytes(&s))
		require.NoError(t, err)
		require.Equal(t, s, *got)
	}
	require.Empty(t, stateBytes(&backend.State{Version: version, Schedule: bucket, State: rate.State{Line: 5}}), "a full state is not stored")
}

func FuzzReadState(f *testing.F) {
	g := rate.Schedule{Kind: rate.SlidingWindow, Period: 1, Segments: 3}
	f.Add(stateBytes(&backend.State{Version: 1, Schedule: g, State: rate.State{Line: 1, Missing: 2, Segments: []rate.Segment{{Line: 1, Serial: 1, Permits: 2}}}}))
	f.Add("")
	f.Fuzz(func(t *testing.T, s string) {
		state, err := readState(s)
		if err == nil {
			require.Positive(t, state.Schedule.Period)
		}
	})
}

func FuzzReadAnswer(f *testing.F) {
	client := redis.NewClient(&redis.Options{})
	f.Cleanup(func() { _ = client.Close() })
	b := newTestBackend(f, client)
	d := slowBucket(5)
	p := b.places(d.Name).planFor(takeOne(d, ""), b.scripts)
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
