package store_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/backend"
)

// A broken is a store in which the state of the key "bad" is broken: its version is too large.
type broken struct {
	*hooked
	version int64
}

func (b *broken) Decide(ctx context.Context, batches []*backend.Batch) error {
	err := b.hooked.Decide(ctx, batches)
	for _, batch := range batches {
		if batch.Key == "bad" {
			batch.Outcome, batch.State, batch.Granted = backend.OutdatedDefinition, backend.State{Schedule: backend.Schedule{Version: b.version}}, nil
		}
	}
	return err
}

func (b *broken) Acquire(ctx context.Context, holds []*backend.LeaseRequest) error {
	err := b.hooked.Acquire(ctx, holds)
	for _, h := range holds {
		if h.Key == "bad" {
			h.Outcome, h.OK, h.Version = backend.OutdatedDefinition, false, b.version
		}
	}
	return err
}

// One key whose state has an impossible version has an error of its own. Nothing changes for the limiter's other keys.
func TestAwaitVersion_ImpossibleVersion(t *testing.T) {
	year2223 := int64(8e15)
	for name, make := range map[string]func(s *store.Store) (l limiter.Partitioned[string], reconfigure func() error){
		"windows": func(s *store.Store) (limiter.Partitioned[string], func() error) {
			p, _ := s.PartitionedFixedWindow("x", limiter.FixedWindowOptions{PermitLimit: 10, Window: time.Hour}, nil)
			return p, func() error { return p.Reconfigure(limiter.FixedWindowOptions{PermitLimit: 11, Window: time.Hour}) }
		},
		"seats": func(s *store.Store) (limiter.Partitioned[string], func() error) {
			p, _ := s.PartitionedConcurrency("x", limiter.ConcurrencyOptions{PermitLimit: 10}, nil)
			return p, func() error { return p.Reconfigure(limiter.ConcurrencyOptions{PermitLimit: 11}) }
		},
	} {
		for _, version := range []int64{year2223, 1<<63 - 1} {
			t.Run(name, func(t *testing.T) {
				inWorld(t, func(t *testing.T, w *world) {
					s := aStore(t, &broken{w.hooked, version}, store.Options{})
					p, reconfigure := make(s)
					ask := func(key string, n int) limiter.Lease { return must2(p.TryAcquire(w.ctx, key, n))(t) }
					require.True(t, ask("good", 10).Acquired())
					before, _, err := w.Load(w.ctx, "x")
					require.NoError(t, err)
					calls := w.Calls("Load")
					for range 20 {
						reason, _ := store.OutageKey.From(ask("bad", 1))
						require.ErrorContains(t, reason, "broken")
						require.False(t, ask("good", 1).Acquired())
					}
					require.LessOrEqual(t, w.Calls("Load")-calls, 2, "the store is not asked each time")
					after, _, err := w.Load(w.ctx, "x")
					require.NoError(t, err)
					require.Equal(t, before, after)
					require.NoError(t, reconfigure())
					require.True(t, ask("good", 1).Acquired())
					require.False(t, ask("good", 1).Acquired())
					after, now, err := w.Load(w.ctx, "x")
					require.NoError(t, err)
					require.LessOrEqual(t, after.Version, max(now, before.Version+1))
					require.NoError(t, s.Health().Err)
				})
			})
		}
	}
}
