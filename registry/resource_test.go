package registry_test

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/registry"
)

// A sharer builds pipelines that share a limiter; each has its own idea of it.
type sharer struct {
	mu    sync.Mutex
	limit map[string]int
	kind  map[string]int // of subjects
	made  map[string]limiter.Limiter
}

func share(t *testing.T, r *registry.Registry, names ...string) *sharer {
	t.Helper()
	s := &sharer{limit: make(map[string]int), kind: make(map[string]int), made: make(map[string]limiter.Limiter)}
	for _, name := range names {
		s.limit[name] = 5
		require.NoError(t, r.Define(name, s.build))
	}
	return s
}

func (s *sharer) build(b *registry.Builder) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.made[b.Name] = subjects[s.kind[b.Name]].make(b, s.limit[b.Name])
	return nil
}

func TestTokenBucket_SharedByPipelines(t *testing.T) {
	r := open(t, nil)
	s := share(t, r, "a", "b")
	get(t, r, "a")
	get(t, r, "b")
	assert.Same(t, s.made["a"], s.made["b"])
	take(t, s.made["a"], 2)
	assert.Equal(t, 3, available(s.made["b"]))
	for name, info := range r.Limiters() {
		assert.Equal(t, "l", name)
		assert.Equal(t, registry.LimiterInfo{
			Name: "l", Kind: "token bucket", Options: plain(bucketOptions(5)), Configured: plain(bucketOptions(5)), Limiter: s.made["a"], Pipelines: []string{"a", "b"},
		}, info)
	}
	s.limit["a"], s.limit["b"] = 9, 9
	require.NoError(t, r.Reload(t.Context()), "both at once")
	assert.Equal(t, 7, available(s.made["a"]))

	s.limit["a"], s.limit["b"] = 4, 4
	require.NoError(t, r.Apply(t.Context(), registry.Change{Define: builds{"a": s.build, "b": s.build}}))
	assert.Equal(t, 2, available(s.made["a"]))

	s.limit["a"] = 8
	require.NoError(t, r.Apply(t.Context(), registry.Change{Define: builds{"a": s.build}, Remove: []string{"b"}}),
		"who disagrees is not in force any more")
	assert.Equal(t, 6, available(s.made["a"]))
}

func conflicts(t *testing.T, err error) {
	t.Helper()
	assert.ErrorIs(t, err, registry.ErrLimiterConflict)
	assert.ErrorContains(t, err, `limiter "l"`)
	assert.ErrorContains(t, err, "pipeline a ")
	assert.ErrorContains(t, err, "pipeline b ")
}

func TestTokenBucket_ConflictOfPipelines(t *testing.T) {
	for name, disagree := range map[string]func(*sharer, string){
		"limit": func(s *sharer, name string) { s.limit[name]++ },
		"kind":  func(s *sharer, name string) { s.kind[name]++ },
	} {
		t.Run(name, func(t *testing.T) {
			var l recorder
			r := open(t, &registry.Options{Listener: &l})
			s := share(t, r, "a")
			s.limit["b"] = 5
			live := s.made["a"]

			disagree(s, "b")
			conflicts(t, r.Define("b", s.build))
			s.limit["b"], s.kind["b"] = s.limit["a"], s.kind["a"]
			require.NoError(t, r.Define("b", s.build))
			require.NoError(t, r.Define("bystander", with()))
			assert.Empty(t, l.take())

			disagree(s, "a")
			conflicts(t, r.Reload(t.Context(), "a", "bystander"))
			assert.Equal(t, []string{"ReloadFailed a"}, l.take(), "the bystander is not at fault")
			conflicts(t, l.last(t, registry.EventReloadFailed).Err)
			conflicts(t, r.Reload(t.Context()))
			assert.Equal(t, []string{"ReloadFailed a", "ReloadFailed b"}, l.take())
			assert.Equal(t, 5, live.(*limiter.TokenBucket).Limits().Permits, "it is as it was")
			assert.Equal(t, 1, r.OwnedLimiters())

			disagree(s, "b")
			require.NoError(t, r.Reload(t.Context()))
			assert.Same(t, s.made["a"], s.made["b"])
		})
	}
}

func TestTokenBucket_ConflictInOnePipeline(t *testing.T) {
	for name, second := range map[string]func(*registry.Builder){
		"limit": func(b *registry.Builder) { b.Concurrency("l", one(2)) },
		"kind":  func(b *registry.Builder) { b.TokenBucket("l", bucketOptions(1)) },
	} {
		r := open(t, nil)
		err := r.Define("orders", func(b *registry.Builder) error {
			first := b.Concurrency("l", one(1))
			assert.Same(t, first, b.Concurrency("l", one(1)), "it may be asked for twice")
			second(b)
			return nil
		})
		assert.ErrorIs(t, err, registry.ErrLimiterConflict, name)
		assert.ErrorContains(t, err, "orders")
	}
}
