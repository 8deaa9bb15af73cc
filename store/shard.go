package store

import (
	"strconv"
	"strings"
	"sync"

	"github.com/weir-go/weir/internal/recovered"
	"github.com/weir-go/weir/store/backend"
)

// A shard is what a [Store] has for one shard of its backend: the circuit breaker and the batchers. A slow shard does
// not delay calls about the keys of another one.
type shard struct {
	name    string // "" for a backend that is not sharded, and for keys whose shard is not known
	breaker breaker
	calls   [batchersPerShard]batcher[*call]
	leases  [batchersPerShard]batcher[*leaseCall]

	repairs [batchersPerShard]batcher[*pendingGroup] // what could not be decided because a limiter was reconfigured
}

func (s *Store) newShard(name string) *shard {
	sh := &shard{name: name}
	sh.breaker.s, sh.breaker.shard = s, sh
	for i := range batchersPerShard {
		sh.calls[i].onIdle, sh.repairs[i].onIdle, sh.leases[i].onIdle = s.idleChanged, s.idleChanged, s.idleChanged
		sh.calls[i].timeout, sh.calls[i].run, sh.calls[i].timedOut = s.o.CallTimeout, s.sendDecisions, s.callsTimedOut
		sh.repairs[i].timeout, sh.repairs[i].run, sh.repairs[i].timedOut = s.o.CallTimeout, s.sendRepairs, s.repairsTimedOut
		sh.leases[i].timeout, sh.leases[i].run, sh.leases[i].timedOut = s.o.CallTimeout, s.sendLeases, s.leasesTimedOut
	}
	return sh
}

func (sh *shard) idle() bool {
	for i := range batchersPerShard {
		if !sh.calls[i].idle() || !sh.repairs[i].idle() || !sh.leases[i].idle() {
			return false
		}
	}
	return true
}

// A shardTable has the shards of a Store. Before newShard, it has only the unknown one.
type shardTable struct {
	unknown *shard
	nameOf  func(name, key string) string // nil if the backend is not sharded
	byName  sync.Map                      // name -> *shard, without the unknown one
	mu      sync.Mutex                    // held while byName is changed
	number  int                           // of shards in byName
}

const (
	// maxShards bounds how many shards have their own health. The keys of further ones share the unknown shard's.
	maxShards = 1024
	// crowdedShards is from which number on shards without keys are looked for: replaced servers have new addresses.
	crowdedShards = 64
)

// shardOf returns the shard of a key. The key "" stands for the limiter's definition, too.
func (s *Store) shardOf(name, key string) *shard {
	if s.shards.nameOf == nil {
		return s.shards.unknown
	}
	in := s.shardName(name, key)
	if in == "" {
		return s.shards.unknown
	}
	if p, ok := s.shards.byName.Load(in); ok {
		return p.(*shard)
	}
	return s.addShard(in)
}

// shardName asks the backend. If that panics, the shard is not known.
func (s *Store) shardName(name, key string) (in string) {
	recovered.Call("store: Backend.ShardOf", func() { in = s.shards.nameOf(name, key) })
	return in
}

func (s *Store) addShard(name string) *shard {
	s.shards.mu.Lock()
	defer s.shards.mu.Unlock()
	if p, ok := s.shards.byName.Load(name); ok {
		return p.(*shard)
	}
	if s.shards.number >= crowdedShards {
		s.forgetEmptyShards()
	}
	if s.shards.number >= maxShards {
		return s.shards.unknown
	}
	name = strings.Clone(name)
	sh := s.newShard(name)
	s.shards.byName.Store(name, sh)
	s.shards.number++
	return sh
}

// forgetEmptyShards forgets the shards that have no keys any more. The probe of a shard that is away forgets it.
func (s *Store) forgetEmptyShards() {
	live := map[string]bool{}
	for name, key := range probeKeys {
		live[s.shardName(name, key)] = true
	}
	for sh := range s.eachShard {
		if sh != s.shards.unknown && !live[sh.name] && sh.breaker.err() == nil && sh.idle() {
			s.shards.byName.Delete(sh.name)
			s.shards.number--
		}
	}
}

// forgetShard forgets a shard that has no keys any more.
func (s *Store) forgetShard(sh *shard) {
	s.shards.mu.Lock()
	defer s.shards.mu.Unlock()
	if s.shards.byName.CompareAndDelete(sh.name, sh) {
		s.shards.number--
	}
}

// eachShard calls f for every shard, the unknown one first.
func (s *Store) eachShard(f func(*shard) bool) {
	if !f(s.shards.unknown) {
		return
	}
	s.shards.byName.Range(func(_, p any) bool { return f(p.(*shard)) })
}

// probeKeys yields so many names and keys that every shard has some of them, if it has more than a few of ten thousand
// keys.
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
