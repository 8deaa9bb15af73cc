package simulate

import (
	"context"
	"fmt"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/storetest"
)

// A Setup is what a [Config] can use: the number of the instance that it defines, and stores that all instances share. It
// must not be used concurrently.
type Setup struct {
	// Instance is the number of the instance, from 0.
	Instance int

	run *run
}

// Store returns a store in which all instances that ask for the same name share their limits. Called again by the same
// instance, it returns the same Store. Run closes it after the registries; the Config must not.
//
// The limiters are those of package store, and their state is in memory. A call of the store takes about a millisecond. It
// takes 2 µs longer in each instance than in the one before, so that the instances do not ask at the same instant.
func (s *Setup) Store(name string) *store.Store {
	s.Assume(fmt.Sprintf("The store %q is simulated in memory, and a call of it takes about a millisecond.", name))
	key := storeKey{name, s.Instance}
	if opened := s.run.stores[key]; opened != nil {
		return opened
	}
	if s.run.stores == nil {
		s.run.stores, s.run.memories = map[storeKey]*store.Store{}, map[string]*storetest.Memory{}
	}
	if s.run.memories[name] == nil {
		s.run.memories[name] = storetest.NewMemory()
	}
	opened := weir.Must(store.New(&memory{
		Memory: s.run.memories[name], seed: s.run.scenario.Seed, key: key,
		halfway: (time.Millisecond + time.Duration(s.Instance+1)*storeSpread) / 2,
	}, nil))
	s.run.stores[key] = opened
	s.run.answer = storeAnswer + 3*time.Duration(s.run.scenario.Instances)*storeSpread
	s.run.onClose = append(s.run.onClose, opened.Close)
	return opened
}

// Assume adds a sentence to [Result.Assumed], unless it is there already. Say what the Config puts in place of something
// that only the program has, such as "The discount service answers at once."
func (s *Setup) Assume(sentence string) {
	if s.run.assumed == nil {
		s.run.assumed = map[string]bool{}
	}
	s.run.assumed[sentence] = true
}

// Key returns the key of the simulated request that ctx belongs to, and "" outside of a simulation. A Config partitions a
// limiter by it, or passes it to [github.com/weir-go/weir/reload.Kinds.RegisterKey].
func Key(ctx context.Context) string {
	if t := taskOf(ctx); t != nil {
		return t.request.key
	}
	return ""
}

// Cost returns how many permits the simulated request that ctx belongs to takes, and 1 outside of a simulation. A Config
// uses it as the Permits of a rate limiter, or passes it to [github.com/weir-go/weir/reload.Kinds.RegisterPermits].
func Cost(ctx context.Context) int {
	if t := taskOf(ctx); t != nil {
		return t.request.cost
	}
	return 1
}
