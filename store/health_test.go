package store_test

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/store"
)

func TestHealth_Prints(t *testing.T) {
	since, gone := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), errors.New("gone")
	b := store.ShardHealth{Shard: "b", Err: gone, Since: since}
	for want, v := range map[string]any{
		"there":            store.Health{},
		"there, listening": store.Health{Listening: true},
		"away since 2026-01-02T03:04:05Z: gone, 1 of 2 shards away":                    store.Health{Err: gone, Since: since, Shards: []store.ShardHealth{{Shard: "a"}, b}},
		"b is away since 2026-01-02T03:04:05Z: gone":                                   b,
		"1 calls, 2 failed, 3 decisions, 4 cached, 5 from blocks, 6 without the store": store.Counters{Calls: 1, Failures: 2, Decisions: 3, Cached: 4, FromBlocks: 5, Outages: 6},
		"store recovered, shard b, away 2s":                                            store.Event{Kind: store.EventStoreRecovered, Shard: "b", Away: 2 * time.Second},
		`lease lost, limiter it, key "k", permits 3, error gone`:                       store.Event{Kind: store.EventLeaseLost, Limiter: "it", Key: "k", Permits: 3, Err: gone},
	} {
		require.Equal(t, want, fmt.Sprint(v))
		var out bytes.Buffer
		slog.New(slog.NewTextHandler(&out, nil)).Info("m", "it", v)
		require.NotContains(t, out.String(), "{")
		require.NotContains(t, out.String(), "null")
	}
}
