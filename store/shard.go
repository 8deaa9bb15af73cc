package store

import (
	"strconv"
	"strings"
	"sync"

	"github.com/weir-go/weir/internal/recovered"
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/store/backend"
)

// A shard is what a [Store] has for one shard of its backend: the circuit breaker and the batchers. A slow shard does
// not delay calls about the keys of another one.
type shard struct {
	name    string // "" for a backend that is not sharded, and for keys whose shard is not known
	breaker breaker
	calls   [maxBatchers]batcher[*call]
	leases  [leaseOps][maxBatchers]batcher[*leaseCall]
	// repairs has what could not be decided because a limiter was reconfigured.
	repairs [maxBatchers]batcher[*outdatedGroup]
}

func (s *Store) newShard(name string) *shard {
	sh := &shard{name: name}
	sh.breaker.s, sh.breaker.shard = s, sh
	for i := range maxBatchers {
		sh.calls[i].init(s, s.roundTrips, s.sendDecisions, s.callsTimedOut)
		sh.repairs[i].init(s, s.roundTrips, s.sendRepairs, s.repairsTimedOut)
		sh.leases[acquireLease][i].init(s, s.roundTrips, s.sendLeases, s.leasesTimedOut)
		sh.leases[releaseLease][i].init(s, s.roundTrips, s.sendLeases, s.leasesTimedOut)
		sh.leases[renewLease][i].init(s, 1, s.sendLeases, s.leasesTimedOut)
	}
	return sh
}

func (sh *shard) idle() bool {
	for i := range maxBatchers {
		if !sh.calls[i].idle() || !sh.repairs[i].idle() {
			return false
		}
		for op := range leaseOps {
			if !sh.leases[op][i].idle() {
				return false
			}
		}
	}
	return true
}

// A shardTable has the shards of a Store. The unknown one has the keys whose shard is not known.
type shardTable struct {
	unknown *shard
	nameOf  func(name, key string) string // nil if the backend is not sharded
	byName  sync.Map                      // name -> *shard, without the unknown one
	mu      sync.Mutex                    // held while byName is changed
	count   int                           // of shards in byName
}

const (
	// maxShards bounds how many shards have their own health. The keys of further shards share the unknown one's.
	maxShards = 1024
	// forgetFrom is the number of shards from which a new shard makes the Store forget shards without keys, such as
	// servers that were replaced.
	forgetFrom = 64
)

// shardOf returns the shard of a key. The shard of the key "" has the limiter's definition, too.
func (s *Store) shardOf(name, key string) *shard {
	if s.shards.nameOf == nil {
		return s.shards.unknown
	}
	shardName := s.shardName(name, key)
	if shardName == "" {
		return s.shards.unknown
	}
	if sh, ok := s.shards.byName.Load(shardName); ok {
		return sh.(*shard)
	}
	return s.addShard(shardName)
}

// checkShard returns why the shard cannot be called, or nil.
func (s *Store) checkShard(sh *shard) error {
	if s.ctx.Err() != nil {
		return limiter.ErrClosed
	}
	return sh.breaker.err()
}

// shardName asks the backend. If that panics, the shard is not known.
func (s *Store) shardName(name, key string) (shardName string) {
	recovered.Call("store: Backend.ShardOf", func() { shardName = s.shards.nameOf(name, key) })
	return shardName
}

func (s *Store) addShard(name string) *shard {
	s.shards.mu.Lock()
	defer s.shards.mu.Unlock()
	if sh, ok := s.shards.byName.Load(name); ok {
		return sh.(*shard)
	}
	if s.shards.count >= forgetFrom {
		s.forgetEmptyShards()
	}
	if s.shards.count >= maxShards {
		return s.shards.unknown
	}
	name = strings.Clone(name)
	sh := s.newShard(name)
	s.shards.byName.Store(name, sh)
	s.shards.count++
	return sh
}

// forgetEmptyShards forgets the shards without keys, except shards that are away: probeLoop forgets those.
func (s *Store) forgetEmptyShards() {
	live := map[string]bool{}
	for name, key := range probeKeys {
		live[s.shardName(name, key)] = true
	}
	for sh := range s.eachShard {
		if sh != s.shards.unknown && !live[sh.name] && sh.breaker.err() == nil && sh.idle() {
			s.shards.byName.Delete(sh.name)
			s.shards.count--
		}
	}
}

// forgetShard forgets a shard that has no keys any more.
func (s *Store) forgetShard(sh *shard) {
	s.shards.mu.Lock()
	defer s.shards.mu.Unlock()
	if s.shards.byName.CompareAndDelete(sh.name, sh) {
		s.shards.count--
	}
}

// eachShard calls f for every shard, the unknown one first.
func (s *Store) eachShard(f func(*shard) bool) {
	if !f(s.shards.unknown) {
		return
	}
	s.shards.byName.Range(func(_, sh any) bool { return f(sh.(*shard)) })
}

// probeKeys yields 16,384 pairs of a name and a key, which is enough to find a key in each of maxShards shards if they
// have about as many keys each.
func probeKeys(yield func(name, key string) bool) {
	for i := range 128 {
		name := probeDefinition.Name
		if i > 0 {
			name += "/" + strconv.Itoa(i)
		}
		for j := range 128 {
			if !yield(name, strconv.Itoa(j)) {
				return
			}
		}
	}
}

// probeTarget returns a definition and a key in the shard; false if none was found.
func (s *Store) probeTarget(sh *shard) (*backend.Definition, string, bool) {
	if s.shards.nameOf == nil {
		return probeDefinition, "", true
	}
	for name, key := range probeKeys {
		if s.shardName(name, key) == sh.name {
			d := *probeDefinition
			d.Name = name
			return &d, key, true
		}
	}
	return nil, "", false
}
