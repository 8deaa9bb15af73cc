package weirpostgres

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/internal/testserver"
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/store"
)

// A key whose row has an impossible version is unavailable, and nothing else changes.
func TestBackend_AKeyWithAnImpossibleVersion(t *testing.T) {
	place, schema := newPlace(t, testserver.Postgres(t))
	opened, closeIt, err := openPlace(place)
	require.NoError(t, err)
	defer closeIt()
	b := opened.(*Backend)
	s, err := store.New(b, &store.Options{CallTimeout: 5 * time.Second})
	require.NoError(t, err)
	defer func() { require.NoError(t, s.Close()) }()
	windows, err := s.PartitionedFixedWindow("windows", limiter.FixedWindowOptions{PermitLimit: 10, Window: time.Hour}, nil)
	require.NoError(t, err)
	seats, err := s.PartitionedConcurrency("seats", limiter.ConcurrencyOptions{PermitLimit: 10}, nil)
	require.NoError(t, err)
	for table, l := range map[string]limiter.Partitioned[string]{"states": windows, "semaphores": seats} {
		name := map[string]string{"states": "windows", "semaphores": "seats"}[table]
		ask := func(key string, n int) limiter.Lease {
			lease, err := l.TryAcquire(t.Context(), key, n)
			require.NoError(t, err)
			return lease
		}
		require.True(t, ask("good", 10).Acquired())
		require.True(t, ask("bad", 1).Acquired())
		before, _, err := b.Load(t.Context(), name)
		require.NoError(t, err)
		for _, version := range []string{"8000000000000000", "9223372036854775807"} {
			_, err = b.pool.Exec(context.Background(), `update "`+schema+`".`+table+` set version = `+version+` where key = 'bad'`)
			require.NoError(t, err)
			for range 3 {
				reason, _ := store.OutageKey.From(ask("bad", 1))
				require.ErrorContains(t, reason, "broken", name)
				lease := ask("good", 1)
				require.False(t, lease.Acquired())
				require.NotEqual(t, limiter.ReasonUnavailable, lease.Reason())
			}
		}
		after, _, err := b.Load(t.Context(), name)
		require.NoError(t, err)
		require.Equal(t, before, after)
	}
	require.NoError(t, windows.Reconfigure(limiter.FixedWindowOptions{PermitLimit: 11, Window: time.Hour}))
	require.NoError(t, seats.Reconfigure(limiter.ConcurrencyOptions{PermitLimit: 11}))
	for _, l := range []limiter.Partitioned[string]{windows, seats} {
		for _, want := range []bool{true, false} {
			lease, err := l.TryAcquire(t.Context(), "good", 1)
			require.NoError(t, err)
			require.Equal(t, want, lease.Acquired())
		}
	}
}
