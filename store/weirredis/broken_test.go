package weirredis

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/store"
)

// A key whose state or leases have an impossible version is unavailable, and nothing else changes.
func TestBackend_AKeyWithAnImpossibleVersion(t *testing.T) {
	junk := doubles(8e15, 1, 1, 1, 1, 1, 1) + "xxxxxxxxxxxxxxxxxxxxxxxxxxx"
	b, client := shared(t)
	s, err := store.New(b, nil)
	require.NoError(t, err)
	defer func() { require.NoError(t, s.Close()) }()
	window := func(limit int) limiter.FixedWindowOptions {
		return limiter.FixedWindowOptions{PermitLimit: limit, Window: time.Hour}
	}
	windows, err := s.PartitionedFixedWindow("windows", window(10), nil)
	require.NoError(t, err)
	seats, err := s.PartitionedConcurrency("seats", limiter.ConcurrencyOptions{PermitLimit: 10}, nil)
	require.NoError(t, err)
	for name, l := range map[string]limiter.Partitioned[string]{"windows": windows, "seats": seats} {
		ask := func(key string, n int) limiter.Lease {
			lease, err := l.TryAcquire(t.Context(), key, n)
			require.NoError(t, err)
			return lease
		}
		require.True(t, ask("good", 10).Acquired())
		before, _, err := b.Load(t.Context(), name)
		require.NoError(t, err)
		require.NoError(t, client.Set(t.Context(), b.names.state(name, "bad"), junk, 0).Err())
		require.NoError(t, client.HSet(t.Context(), b.names.leases(name, "bad"), "", junk[:56]).Err())
		for range 5 {
			reason, _ := store.OutageKey.From(ask("bad", 1))
			require.ErrorContains(t, reason, "broken", name)
			lease := ask("good", 1)
			require.False(t, lease.Acquired())
			require.NotEqual(t, limiter.ReasonUnavailable, lease.Reason())
		}
		after, _, err := b.Load(t.Context(), name)
		require.NoError(t, err)
		require.Equal(t, before, after)
	}
	require.NoError(t, windows.Reconfigure(window(11)))
	require.NoError(t, seats.Reconfigure(limiter.ConcurrencyOptions{PermitLimit: 11}))
	for _, l := range []limiter.Partitioned[string]{windows, seats} {
		for _, want := range []bool{true, false} {
			lease, err := l.TryAcquire(t.Context(), "good", 1)
			require.NoError(t, err)
			require.Equal(t, want, lease.Acquired())
		}
	}
}
