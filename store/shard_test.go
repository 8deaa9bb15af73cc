package store_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/rate"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/backend"
)

// divided puts the keys into shards by their prefix up to "/". Definitions are in the shard "a".
func (w *world) divided() {
	w.SetShards(func(name, key string) string {
		if name == "weir/probe" {
			return []string{"a", "b", "c"}[len(key)%3]
		}
		part, _, _ := strings.Cut(key, "/")
		if part == "" {
			return "a"
		}
		return part
	})
}

func (w *world) keys(s *store.Store, limit int, how *store.LimiterOptions) *store.Partitioned {
	return must(s.PartitionedTokenBucket("keys", bucketOf(limit, 1, time.Hour, 0), how))(w.T)
}

func (w *world) ask(p limiter.Partitioned[string], key string) limiter.Lease {
	w.Helper()
	return must(p.TryAcquire(w.ctx, key, 1))(w.T)
}

// While one shard is away, the others are used as before, and only the lost one is probed.
func TestShard_OneIsLost(t *testing.T) {
	for _, lost := range []string{"a", "b"} { // a has the definition
		t.Run(lost, subtest(func(t *testing.T, w *world) {
			w.divided()
			s := w.instance(store.Options{})
			p := w.keys(s, 1000, nil)
			for _, part := range []string{"a", "b", "c"} {
				require.True(t, w.ask(p, part+"/1").Acquired())
			}
			w.FailShard(lost, errDead)
			for i := range 10 {
				for _, part := range []string{"a", "b", "c"} {
					require.Equal(t, part != lost, w.ask(p, fmt.Sprint(part, "/", i)).Acquired(), part)
				}
			}
			events := w.events.of(store.EventStoreLost)
			require.Len(t, events, 1)
			require.Equal(t, lost, events[0].Shard)
			h := s.Health()
			require.ErrorIs(t, h.Err, errDead)
			require.ErrorContains(t, h.Err, lost)
			require.Len(t, h.Shards, 3)
			for _, part := range h.Shards {
				require.Equal(t, part.Shard == lost, part.Err != nil, part.Shard)
			}
			w.pass(time.Minute)
			require.Empty(t, w.events.of(store.EventStoreRecovered), "the probe asks the part that is lost")
			require.True(t, w.ask(p, "c/2").Acquired())
			w.FailShard(lost, nil)
			w.pass(2 * time.Second)
			require.NoError(t, s.Health().Err)
			require.Len(t, w.events.of(store.EventStoreRecovered), 1)
			require.Equal(t, lost, w.events.of(store.EventStoreRecovered)[0].Shard)
			require.True(t, w.ask(p, lost+"/1").Acquired())
		}))
	}
}

// Calls to a shard that does not answer do not delay calls to another one.
func TestShard_OneStalls(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.divided()
		s := w.instance(store.Options{})
		p := w.keys(s, 1000, nil)
		for _, part := range []string{"a", "b", "c"} {
			w.ask(p, part+"/1")
		}
		w.StallShard("b", true)
		var all sync.WaitGroup
		for i := range 100 {
			all.Go(func() { w.ask(p, fmt.Sprint("b/", i)) })
			all.Go(func() {
				took := timed(func() {
					if !w.ask(p, fmt.Sprint("c/", i)).Acquired() {
						t.Error("rejected")
					}
				})
				if took > 0 {
					t.Errorf("it took %v", took)
				}
			})
		}
		all.Wait()
		w.StallShard("b", false)
	})
}

// While the shard of the definition is away, and the definition is not known yet, calls about keys of other shards do not wait.
func TestShard_OfTheDefinitionIsAway(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.divided()
		w.StallShard("a", true)
		s := w.instance(store.Options{})
		p := w.keys(s, 1000, nil)
		for s.Health().Err == nil {
			require.False(t, w.ask(p, "b/1").Acquired())
		}
		for range 20 {
			require.Zero(t, timed(func() { require.False(t, w.ask(p, "b/1").Acquired()) }))
			w.pass(100 * time.Millisecond)
		}
		w.StallShard("a", false)
		w.pass(2 * time.Second)
		require.True(t, w.ask(p, "b/1").Acquired())
	})
}

// A shard that has no keys any more is not probed forever.
func TestShard_WithoutKeys(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		where := "old"
		var mu sync.Mutex
		w.SetShards(func(string, string) string {
			mu.Lock()
			defer mu.Unlock()
			return where
		})
		s := w.instance(store.Options{})
		p := w.keys(s, 1000, nil)
		w.ask(p, "k")
		w.FailShard("old", errDead)
		for range 5 {
			require.False(t, w.ask(p, "k").Acquired())
		}
		require.Error(t, s.Health().Err)
		mu.Lock()
		where = "new"
		mu.Unlock()
		require.True(t, w.ask(p, "k").Acquired(), "at once")
		w.pass(2 * time.Second)
		require.NoError(t, s.Health().Err)
		require.Equal(t, []store.ShardHealth{{Shard: "new"}}, s.Health().Shards)
	})
}

// However many shards a backend has had, the number remembered is bounded.
func TestShard_Many(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		n := 0
		w.SetShards(func(name, _ string) string {
			if name == "weir/probe" {
				return "live"
			}
			n++
			return fmt.Sprint(n)
		})
		s := w.instance(store.Options{})
		p := w.keys(s, 100_000, nil)
		for range 3000 {
			require.True(t, w.ask(p, "k").Acquired())
		}
		require.LessOrEqual(t, len(s.Health().Shards), 1024)
	})
}

// If one key fails, the other keys of its round trip are decided, and the store does not count as away.
func TestKeyError_StaysWithTheKey(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		s := w.instance(store.Options{})
		p := w.keys(s, 1000, nil)
		seats := must(s.PartitionedConcurrency("seats", limiter.ConcurrencyOptions{PermitLimit: 1000}, nil))(t)
		w.FailKey("keys", "bad", errors.New("WRONGTYPE"))
		w.FailKey("seats", "bad", errors.New("WRONGTYPE"))
		w.ask(p, "good")
		w.ask(seats, "good")
		for range 20 {
			var all sync.WaitGroup
			for i := range 10 {
				for _, l := range []limiter.Partitioned[string]{p, seats} {
					all.Go(func() {
						lease := w.ask(l, "bad")
						if err, _ := store.OutageKey.From(lease); lease.Acquired() || !strings.Contains(err.Error(), "WRONGTYPE") {
							t.Error(lease.Acquired(), err)
						}
					})
					all.Go(func() {
						if !w.ask(l, fmt.Sprint("good", i)).Acquired() {
							t.Error("rejected")
						}
					})
				}
			}
			all.Wait()
		}
		require.NoError(t, s.Health().Err)
		require.Empty(t, w.events.of(store.EventStoreLost))
	})
}

// If a definition cannot be read or written, only its limiter is affected.
func TestDefinitionError_StaysWithTheLimiter(t *testing.T) {
	broken := errors.New("WRONGTYPE")
	inWorld(t, func(t *testing.T, w *world) {
		s := w.instance(store.Options{})
		good := w.keys(s, 1000, nil)
		known := must(s.TokenBucket("known", bucketOf(1000, 1, time.Hour, 0), nil))(t)
		bad := []limiter.Limiter{
			must(s.TokenBucket("bad", bucketOf(10, 1, time.Hour, 0), nil))(t),
			must(s.Concurrency("badseats", limiter.ConcurrencyOptions{PermitLimit: 10}, nil))(t),
		}
		w.ask(good, "k")
		w.granted(known, 1)
		for _, name := range []string{"bad", "badseats", "known"} {
			w.FailKey(name, "", broken)
		}
		for range 10 {
			for _, l := range bad {
				err, _ := store.OutageKey.From(w.rejected(l, 1))
				require.ErrorIs(t, err, backend.ErrDefinition)
				require.ErrorIs(t, err, broken)
			}
			err := known.Reconfigure(bucketOf(500, 1, time.Hour, 0))
			require.ErrorIs(t, err, store.ErrUnavailable)
			require.ErrorIs(t, err, backend.ErrDefinition)
		}
		require.NoError(t, s.Health().Err)
		require.True(t, w.ask(good, "k").Acquired())
		require.Empty(t, w.events.of(store.EventStoreLost))
		require.Zero(t, s.Counters().Failures)

		for _, name := range []string{"bad", "badseats", "known"} {
			w.FailKey(name, "", nil)
		}
		for _, l := range bad {
			w.granted(l, 1)
		}
		require.NoError(t, known.Reconfigure(bucketOf(500, 1, time.Hour, 0)))
	})
}

// A stored definition by which nothing can be decided fails its limiter, and not the process.
func TestDefinitionError_WithoutPeriod(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		broken := &backend.Definition{Name: "bucket", Version: 1, Schedule: rate.Schedule{Kind: rate.TokenBucket, Permits: 5}}
		require.True(t, must(w.Define(w.ctx, 0, broken))(t))
		err, _ := store.OutageKey.From(w.rejected(w.bucket(10, 1, time.Hour, 0, nil), 1))
		require.ErrorIs(t, err, backend.ErrDefinition)
	})
}

// An error of writing a definition counts neither as a failure nor as a success of the store.
func TestDefinitionError_ResetsNoFailures(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		s := w.instance(store.Options{})
		good := w.keys(s, 1000, nil)
		known := must(s.TokenBucket("known", bucketOf(1000, 1, time.Hour, 0), nil))(t)
		w.ask(good, "k")
		w.granted(known, 1)
		w.hook(func(method string) error {
			switch method {
			case "Define":
				return fmt.Errorf("%w: it is locked", backend.ErrDefinition)
			case "Decide":
				return errDead
			}
			return nil
		}, nil)
		for i := range 3 {
			for range 5 {
				require.ErrorIs(t, known.Reconfigure(bucketOf(500, 1, time.Hour, 0)), backend.ErrDefinition)
			}
			require.Empty(t, w.events.of(store.EventStoreLost), "after %d failures", i)
			w.ask(good, "k")
		}
		require.Len(t, w.events.of(store.EventStoreLost), 1)
	})
}

// While a shard is away, the permits of its limiters are as last known, and the permits of others are of now.
func TestShard_StatisticsAreLastKnown(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.SetShards(func(name, key string) string {
			if name == "weir/probe" {
				return []string{"a", "b"}[len(key)%2]
			}
			return name
		})
		s := w.instance(store.Options{})
		statistics := map[string]func() limiter.Statistics{}
		for _, name := range []string{"a", "b"} {
			l := must(s.TokenBucket(name, bucketOf(10, 1, time.Hour, 0), nil))(t)
			w.granted(l, 4)
			statistics[name] = l.Statistics
			require.Equal(t, limiter.Statistics{AvailablePermits: 6, SuccessfulLeases: 1}, l.Statistics())
		}
		w.FailShard("b", errDead)
		for range 3 { // from the first call that fails
			require.Equal(t, "6 available, 0 queued, 1 granted, 0 rejected", statistics["a"]().String())
			require.Equal(t, "6 available as last known, 0 queued, 1 granted, 0 rejected", statistics["b"]().String())
		}
		w.FailShard("b", nil)
		w.pass(2 * time.Second)
		require.False(t, statistics["b"]().LastKnown)
	})
}
