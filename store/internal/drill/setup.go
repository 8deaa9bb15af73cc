package drill

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/backend"
)

// A MixedLoad uses limiters of several kinds: some calls only read, some need more rights.
type MixedLoad struct {
	s         *store.Store
	recovered atomic.Int64
	bucket    *store.Partitioned
	window    *store.Partitioned
	slots     *store.Partitioned
	calls     int
}

// NewMixedLoad makes a Store with open, which is closed at the end of the test.
func NewMixedLoad(t *testing.T, open func(store.Options) (*store.Store, error)) *MixedLoad {
	load := &MixedLoad{}
	load.s = must(open(store.Options{ProbeInterval: 10 * time.Millisecond, OnEvent: func(e store.Event) {
		if e.Kind == store.EventStoreRecovered {
			load.recovered.Add(1)
		}
	}}))(t)
	t.Cleanup(func() { _ = load.s.Close() })
	load.bucket = must(load.s.PartitionedTokenBucket(uniqueName("bucket"), limiter.TokenBucketOptions{
		TokenLimit: 10, TokensPerPeriod: 1, ReplenishmentPeriod: time.Hour,
	}, nil))(t)
	load.window = must(load.s.PartitionedSlidingWindow(uniqueName("window"), limiter.SlidingWindowOptions{
		PermitLimit: 10, Window: time.Hour, SegmentsPerWindow: 1,
	}, nil))(t)
	load.slots = must(load.s.PartitionedConcurrency(uniqueName("slots"), limiter.ConcurrencyOptions{PermitLimit: 1}, nil))(t)
	return load
}

// use makes one call of each sort and reports whether the store has granted all that is to be granted.
func (load *MixedLoad) use(t *testing.T) bool {
	load.calls++
	ctx, key := context.Background(), fmt.Sprint(load.calls)
	taken := must(load.bucket.TryAcquire(ctx, key, 1))(t)
	_, _ = load.bucket.TryAcquire(ctx, "empty", 10)
	_, _ = load.bucket.Peek(ctx, "unused", 1)
	taken.Refund()
	must(load.window.TryAcquire(ctx, key, 1))(t).Refund()
	lease := must(load.slots.TryAcquire(ctx, key, 1))(t)
	lease.Release()
	return taken.Acquired() && lease.Acquired()
}

// StaysAway expects that the store counts as away from the calls after forbid until those after allow.
func (load *MixedLoad) StaysAway(t *testing.T, forbid, allow func()) {
	eventually(t, "the store is there", func() bool { return load.use(t) })
	defer allow() // also if it fails: other cases use the same server
	forbid()
	eventually(t, "the store is away", func() bool {
		load.use(t)
		return errors.Is(load.s.Health().Err, backend.ErrSetup)
	})
	before := load.s.Counters().Calls
	eventually(t, "it was probed several times", func() bool { return load.s.Counters().Calls >= before+5 })
	if err := load.s.Health().Err; !errors.Is(err, backend.ErrSetup) || load.recovered.Load() > 0 {
		t.Errorf("it has recovered %d times, and is now: %v", load.recovered.Load(), err)
	}
	allow()
	eventually(t, "the store is there again", func() bool { return load.use(t) && load.s.Health().Err == nil })
}
