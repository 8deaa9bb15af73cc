package calls

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir/internal/recovered"
	"github.com/weir-go/weir/store/backend"
)

// A shard is a part of the store that fails separately: it has batchers, so that a slow shard does not delay calls about the
// keys of another one, and is a circuit breaker. While it is away, a call costs one atomic load, and one goroutine probes it.
type shard struct {
	*link
	table    *shardTable
	name     string // "" for a backend that is not sharded, and for keys whose shard is not known
	batchers [ops][maxBatchers]batcher

	away     atomic.Pointer[outage] // nil while the shard is there
	failed   atomic.Int64           // failures counted so far
	mu       sync.Mutex
	failures int // in a row
}

type outage struct {
	err   error
	since time.Time
}

// An epoch is the number of failures when a call began. Calls that are under way together and fail together have one cause,
// such as a pause of the network, and count as one failure.
type epoch int64

func (sh *shard) epoch() epoch { return epoch(sh.failed.Load()) }

// check returns why the shard cannot be called, or nil.
func (sh *shard) check() error {
	if o := sh.away.Load(); o != nil {
		return o.err
	}
	return sh.o.Background.Err()
}

// record counts the end of a call.
func (sh *shard) record(begun epoch, err error) {
	sh.Made.Add(1)
	switch {
	case err == nil:
		sh.mu.Lock()
		sh.failures = 0
		sh.mu.Unlock()
		return
	case errors.Is(err, backend.ErrDefinition): // the store has answered, but may refuse writes
		return
	}
	if sh.Failed.Add(1); sh.o.Background.Err() == nil && sh.lose(begun, err) {
		sh.o.Lost(sh.name, err)
		sh.o.Background.Go(sh.probeUntilBack)
	}
}

// lose counts a failure, unless another one was counted since the call began, and reports whether the shard counts as away
// because of it.
func (sh *shard) lose(begun epoch, err error) bool {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if sh.epoch() != begun {
		return false
	}
	sh.failed.Add(1)
	sh.failures++
	if sh.away.Load() != nil || sh.failures < sh.o.FailureThreshold {
		return false
	}
	if sh.name != "" {
		err = fmt.Errorf("%s: %w", sh.name, err)
	}
	sh.away.Store(&outage{err: Unavailable(err), since: time.Now()})
	return true
}

// probeUntilBack probes the shard until it is back, or has no keys any more.
func (sh *shard) probeUntilBack() {
	was := sh.away.Load()
	for sh.o.Background.Sleep(time.Duration(float64(sh.o.ProbeInterval) * (0.8 + 0.4*rand.Float64()))) {
		d, key, hasKeys := sh.target()
		if hasKeys {
			err := sh.probe(d, key)
			if sh.o.Background.Err() != nil {
				return
			}
			if sh.Made.Add(1); err != nil {
				sh.Failed.Add(1)
				continue
			}
			_, _, hasKeys = sh.target()
		}
		if !hasKeys {
			sh.table.byName.CompareAndDelete(sh.name, sh) // its keys are in other shards now
		}
		sh.mu.Lock()
		sh.failures = 0
		sh.away.Store(nil)
		sh.mu.Unlock()
		sh.o.Recovered(sh.name, time.Since(was.since))
		return
	}
}

// target returns a definition and a key in the shard, or false if it has none: then its keys are in other shards now. 16,384
// pairs of a name and a key are enough to find one in each of 1,000 shards that have about as many keys each.
func (sh *shard) target() (*backend.Definition, string, bool) {
	if sh.table.nameOf == nil {
		return probeDefinition, "", true
	}
	for i := range 1 << 14 {
		d, key := *probeDefinition, strconv.Itoa(i%128)
		if i >= 128 {
			d.Name += "/" + strconv.Itoa(i/128)
		}
		if sh.table.name(d.Name, key) == sh.name {
			return &d, key, true
		}
	}
	return nil, "", false
}

// A shardTable has the shards of a Client. The unknown one has the keys whose shard is not known.
type shardTable struct {
	link    *link
	unknown *shard
	nameOf  func(name, key string) string // nil if the backend is not sharded
	byName  sync.Map                      // name -> *shard, without the unknown one
	mu      sync.Mutex                    // held while a shard is added
	count   int                           // of the shards added since idle ones were forgotten
}

// forgetFrom is after how many new shards all are forgotten that are not away: some are servers that were replaced.
const forgetFrom = 1024

// name asks the backend. If that panics, the shard is not known.
func (t *shardTable) name(name, key string) (shard string) {
	recovered.Call("store: Backend.ShardOf", func() { shard = t.nameOf(name, key) })
	return shard
}

// all yields the unknown shard and then the others.
func (t *shardTable) all(yield func(*shard) bool) {
	if yield(t.unknown) {
		t.byName.Range(func(_, sh any) bool { return yield(sh.(*shard)) })
	}
}

// of returns the shard of a key. The shard of the key "" has the limiter's definition, too.
func (t *shardTable) of(name, key string) *shard {
	if t.nameOf == nil {
		return t.unknown
	}
	shardName := t.name(name, key)
	if shardName == "" {
		return t.unknown
	}
	if sh, ok := t.byName.Load(shardName); ok {
		return sh.(*shard)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.count++; t.count > forgetFrom {
		t.count = 0
		t.byName.Range(func(name, sh any) bool {
			if sh.(*shard).away.Load() == nil {
				t.byName.Delete(name)
			}
			return true
		})
	}
	shardName = strings.Clone(shardName)
	sh, _ := t.byName.LoadOrStore(shardName, t.newShard(shardName))
	return sh.(*shard)
}

func (t *shardTable) newShard(name string) *shard {
	sh := &shard{link: t.link, table: t, name: name}
	for i := range maxBatchers {
		for op := range ops {
			sh.batchers[op][i] = batcher{shard: sh, most: t.link.most.trips, place: 1 + int(op)*maxBatchers + i}
		}
		sh.batchers[Renew][i].most = min(t.link.most.trips, 2) // if one hangs, a lease is renewed by the other
	}
	return sh
}
