package simulate

import (
	"context"
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/deterministic"
	"github.com/weir-go/weir/registry"
	"github.com/weir-go/weir/reload"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/backend"
	"github.com/weir-go/weir/store/storetest"
	"github.com/weir-go/weir/strategies/chaos"
	"github.com/weir-go/weir/strategies/circuitbreaker"
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
// takes up to 2 µs longer in each instance than in the one before, so that the instances do not ask at the same instant, and
// in none more than about two milliseconds.
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
		halfway: s.run.callTime(s.Instance) / 2,
	}, nil))
	s.run.stores[key] = opened
	// A call, another one that was under way when the execution asked, and a reserve.
	s.run.answer = 3 * s.run.callTime(s.run.scenario.Instances-1)
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

// File returns a Config of the pipelines of a configuration file, as package reload reads it. name is the name of the file
// for messages.
//
// A file can name functions and stores of its program. register registers the ones that are known here; it is called for
// each instance, and can be nil. For each other name that the pipeline needs, Result.Assumed says what the simulation
// uses in its place:
//
//	key       the key of the simulated request, see [Key]
//	permits   the cost of the simulated request, see [Cost]
//	handle    the default of the strategy
//	fallback  an action that succeeds
//	control   a new control, by which no circuit is isolated
//	error     the default error of chaos_fault, [chaos.ErrInjected]
//	outcome   [chaos.ErrInjected]
//	behavior  a behavior that does nothing
//	store     [Setup.Store]
//
// Other kinds of strategies and limiters than weir's own must be registered if the pipeline needs them.
func File(name string, data []byte, register func(s *Setup, k *reload.Kinds)) Config {
	return func(s *Setup) (registry.Change, error) {
		k := reload.NewKinds()
		if register != nil {
			register(s, k)
		}
		k.AcceptUnknown()
		k.Resolve(s.resolve)
		f, err := reload.Parse(name, data, k)
		if err != nil {
			return registry.Change{}, err
		}
		change := f.Change(nil)
		pipeline := s.run.scenario.Pipeline
		if all := f.Pipelines(); pipeline == "" && len(all) == 1 {
			pipeline = all[0]
		}
		// What the others need is not assumed. A pipeline that is not in the list is of a section, and can need any.
		if needed := map[string]bool{}; s.need(f, pipeline, needed) {
			maps.DeleteFunc(change.Define, func(name string, _ registry.BuildFunc) bool { return !needed[name] })
		}
		return change, nil
	}
}

// need adds the pipeline of that name and the ones that are embedded in it to needed, and says which of their limiters are in
// stores. It reports whether it is in the list of pipelines of f.
func (s *Setup) need(f *reload.File, pipeline string, needed map[string]bool) bool {
	if !slices.Contains(f.Pipelines(), pipeline) {
		return false
	}
	if needed[pipeline] {
		return true
	}
	needed[pipeline] = true
	for _, strategy := range f.Strategies(pipeline) {
		s.need(f, strategy.Pipeline, needed)
		s.assumeStored(f, strategy.Limiter)
	}
	return true
}

// assumeStored says in which stores a limiter and the members of a chain are.
func (s *Setup) assumeStored(f *reload.File, l reload.LimiterInfo) {
	if l.Store != "" {
		s.Assume(fmt.Sprintf("The limiter %q is in the store %q.", l.Name, l.Store))
	}
	for _, name := range l.Members {
		if member, ok := f.Limiter(name); ok {
			s.assumeStored(f, member)
		}
	}
}

// resolve returns what is assumed of a name that the program registers.
func (s *Setup) resolve(what, name string) (thing any, ok bool) {
	var sentence string
	switch what {
	case "key":
		thing, sentence = Key, "The key %q is the key of the request."
	case "permits":
		thing, sentence = Cost, "The permits %q are the cost of the request."
	case "handle":
		thing, sentence = nil, "The handle %q is the default of the strategy."
	case "fallback":
		thing, sentence = succeed, "The fallback %q succeeds."
	case "control":
		thing, sentence = new(circuitbreaker.Control), "The control %q isolates no circuit."
	case "error":
		thing, sentence = nil, "The error %q is that of any injected fault."
	case "outcome":
		thing, sentence = fail, "The outcome %q is an injected fault."
	case "behavior":
		thing, sentence = nothing, "The behavior %q does nothing."
	case "store":
		return s.Store(name), true // which says it itself
	default:
		return nil, false
	}
	s.Assume(fmt.Sprintf(sentence, name))
	return thing, true
}

func succeed(context.Context, any, error) (any, error) { return nil, nil }
func fail(context.Context) (chaos.Result, bool)        { return chaos.Result{Err: chaos.ErrInjected}, true }
func nothing(context.Context) error                    { return nil }

// openStores are the stores of a run. Only build uses them: Configs and the pipelines that they define ask for them, one
// after the other.
type openStores struct {
	stores   map[storeKey]*store.Store
	memories map[string]*storetest.Memory // by the name of the store
}

// A storeKey says which instance has a [store.Store].
type storeKey struct {
	name     string
	instance int
}

// storeSpread is how much longer a call takes in each instance than in the one before, if they are fewer than manyInstances.
// It is no round number, so that no answer comes at the moment of a tick or an arrival.
const (
	storeSpread   = 2018 * time.Nanosecond
	manyInstances = 500
)

// callTime returns how long a call of a store takes in an instance: at most a millisecond longer in the last one than in the
// first.
func (r *run) callTime(instance int) time.Duration {
	return time.Millisecond + time.Duration(instance+1)*(storeSpread/time.Duration(1+r.scenario.Instances/manyInstances))
}

// A memory is the backend of one instance's Store: the Memory that all instances share, behind a network.
type memory struct {
	*storetest.Memory
	seed    uint64
	key     storeKey
	halfway time.Duration // how long a call takes to the Memory, and as long its answer back
}

var _ deterministic.Maker = (*memory)(nil)

// MakeSource implements [deterministic.Maker].
func (m *memory) MakeSource(name, key string) *deterministic.Source {
	h := fnv.New64a()
	for _, s := range []string{m.key.name, name, key} {
		h.Write([]byte(s))
		h.Write([]byte{0})
	}
	h.Write(binary.LittleEndian.AppendUint64(nil, uint64(m.key.instance)))
	return &deterministic.Source{Rand: rand.New(rand.NewPCG(m.seed, h.Sum64()))}
}

func (m *memory) call(ctx context.Context, f func() error) error {
	if err := m.travel(ctx); err != nil {
		return err
	}
	if err := f(); err != nil {
		return err
	}
	return m.travel(ctx)
}

// travel waits as long as the network takes in one direction.
func (m *memory) travel(ctx context.Context) error {
	t := time.NewTimer(m.halfway)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Decide implements [backend.Backend].
func (m *memory) Decide(ctx context.Context, batches []*backend.Batch) error {
	return m.call(ctx, func() error { return m.Memory.Decide(ctx, batches) })
}

// Replace implements [backend.Backend].
func (m *memory) Replace(ctx context.Context, all []*backend.Replacement) error {
	return m.call(ctx, func() error { return m.Memory.Replace(ctx, all) })
}

// Load implements [backend.Backend].
func (m *memory) Load(ctx context.Context, name string) (d *backend.Definition, now int64, err error) {
	err = m.call(ctx, func() (err error) {
		d, now, err = m.Memory.Load(ctx, name)
		return err
	})
	return d, now, err
}

// Define implements [backend.Backend].
func (m *memory) Define(ctx context.Context, old int64, next *backend.Definition) (done bool, err error) {
	err = m.call(ctx, func() (err error) {
		done, err = m.Memory.Define(ctx, old, next)
		return err
	})
	return done, err
}

// Acquire implements [backend.Backend].
func (m *memory) Acquire(ctx context.Context, requests []*backend.LeaseRequest) error {
	return m.call(ctx, func() error { return m.Memory.Acquire(ctx, requests) })
}

// Renew implements [backend.Backend].
func (m *memory) Renew(ctx context.Context, requests []*backend.LeaseRequest) error {
	return m.call(ctx, func() error { return m.Memory.Renew(ctx, requests) })
}

// Release implements [backend.Backend].
func (m *memory) Release(ctx context.Context, requests []*backend.LeaseRequest) error {
	return m.call(ctx, func() error { return m.Memory.Release(ctx, requests) })
}
