package dashboard

import (
	"context"
	"errors"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/registry"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/storetest"
	"github.com/weir-go/weir/strategies/circuitbreaker"
	"github.com/weir-go/weir/strategies/ratelimit"
)

func TestSnapshot_Trouble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t, nil)
		assert.Empty(t, s.view("/overview.json").Trouble)
		assert.Contains(t, s.html("/overview"), "Nothing is in trouble.")
		s.execute(t.Context(), "orders", 2, errBoom) // three failures in a row
		s.execute(t.Context(), "orders", 5, nil)
		require.Error(t, s.registry.Apply(t.Context(), registry.Change{Define: map[string]registry.BuildFunc{
			"api": func(*registry.Builder) error { return errors.New("no such file") },
		}}))
		time.Sleep(tick + time.Millisecond)
		synctest.Wait()
		d := s.view("/overview.json")
		got := map[string]string{}
		for _, each := range d.Trouble {
			got[each.What+" "+each.Name] += each.Level.String() + ": " + each.Text + "\n"
		}
		assert.Equal(t, "error: is open: boom\n", got["circuit orders/CircuitBreaker"])
		assert.Regexp(t, `^error: rejects 2.\d/s and grants 1.\d/s\n$`, got["limiter bucket"])
		assert.Contains(t, got["pipeline api"], "error: was not reloaded, version 1 stays: ")
		assert.Contains(t, got["pipeline api"], "no such file")
		assert.Contains(t, got["pipeline orders"], "warning: Retry: OnRetry ")
		assert.NotContains(t, got["pipeline orders"], "OnRateLimiterRejected", "the line of the limiter says it")
		for i := 1; i < len(d.Trouble); i++ {
			assert.LessOrEqual(t, d.Trouble[i].Level, d.Trouble[i-1].Level, "the worst comes first")
		}

		time.Sleep(time.Minute)
		synctest.Wait()
		got = map[string]string{}
		for _, each := range s.view("/overview.json").Trouble {
			got[each.What+" "+each.Name] = each.Text
		}
		assert.Empty(t, got["limiter bucket"], "it no longer rejects")
		assert.NotEmpty(t, got["circuit orders/CircuitBreaker"])
	})
}

// A limiter in shadow mode rejects nothing.
func TestSnapshot_Shadow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var trial limiter.Limiter
		s := newScene(t, func(s *scene, _ *Options) {
			s.define("trial", func(b *registry.Builder) error {
				trial = b.FixedWindow("trial", limiter.FixedWindowOptions{PermitLimit: 1, Window: time.Hour})
				b.Add(ratelimit.New(trial, &ratelimit.Options{Shadow: true}))
				return nil
			})
		})
		for range 3 {
			s.get("/overview.json")
			s.execute(t.Context(), "trial", 5, nil)
			time.Sleep(tick)
			synctest.Wait()
		}
		d := s.view("/overview.json")
		require.Len(t, d.Trouble, 1)
		assert.Equal(t, levelNotice, d.Trouble[0].Level)
		assert.Equal(t, "would reject 2.3/s, and is in shadow mode", d.Trouble[0].Text)
		assert.Zero(t, d.Summary.Rejecting)
		assert.Zero(t, *d.Summary.Rejected)
		assert.Contains(t, s.get("/limiters.txt").Body.String(), "2.3 (shadow)")
		assert.Contains(t, s.html("/limiters"), "in shadow mode")

		s.execute(t.Context(), "orders", 9, nil) // another pipeline rejects
		time.Sleep(tick + time.Millisecond)
		synctest.Wait()
		d = s.view("/overview.json")
		assert.Equal(t, 1, d.Summary.Rejecting)
		require.Len(t, d.Trouble, 2)

		for range 20 { // a policy that is in no pipeline enforces the limiter
			_, err := trial.TryAcquire(t.Context(), 1)
			require.NoError(t, err)
		}
		time.Sleep(tick)
		synctest.Wait()
		assert.Equal(t, 2, s.view("/overview.json").Summary.Rejecting)
	})
}

func TestLimiterSeries_HistoryAndRates(t *testing.T) {
	var s limiterSeries
	now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	granted, rejected := int64(1000), int64(50) // counts that were there before
	for range 200 {
		s.add(now, new(granted), rejected)
		now = now.Add(tick)
		granted += 10
		rejected += 2
	}
	assert.InDelta(t, 5, *s.grantedRate.perSecond(), 0.001)
	assert.InDelta(t, 1, *s.rejectedRate.perSecond(), 0.001)
	all := s.columnsInOrder()
	require.Len(t, all, columns)
	for _, c := range all[:columns-1] {
		assert.Equal(t, column{new(int64(30)), new(int64(6))}, c)
	}
	assert.False(t, s.rejecting.IsZero())

	s.add(now.Add(2*time.Minute), new(s.granted), s.rejected) // the process was stopped for a while
	all = s.columnsInOrder()
	assert.Zero(t, all[columns-5], "not known")
	assert.Equal(t, column{new(int64(30)), new(int64(6))}, all[10])
	assert.True(t, s.rejecting.IsZero())
	assert.Nil(t, s.rejectedRate.perSecond(), "not that of the last minutes")

	s.add(now.Add(3*time.Hour), new(int64(0)), 0) // another limiter counts from 0
	assert.Nil(t, s.rejectedRate.perSecond())
	for _, c := range s.columnsInOrder() {
		assert.Zero(t, c)
	}
}

// While no page is open, neither a store nor a function of the program is called; the history goes on.
func TestSampler_WhileNoPageIsOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &awayBackend{}
		st := weir.Must(store.New(b, &store.Options{NoListen: true, ProbeInterval: time.Hour}))
		defer func() { _ = st.Close() }()
		var described atomic.Int32
		s := newScene(t, func(s *scene, o *Options) {
			s.define("shared", func(b *registry.Builder) error {
				b.Add(ratelimit.New(registry.Shared(b, st, "shared", limiter.PerSecond(5, 5), nil), nil), &describing{f: func() { described.Add(1) }})
				return nil
			})
			jobs := newFakeJobs()
			jobs.panics = true
			o.Jobs = jobs
		})
		s.execute(t.Context(), "orders", 5, nil)
		before := b.calls.Load()
		time.Sleep(10 * time.Minute)
		assert.Equal(t, before, b.calls.Load())
		assert.Zero(t, described.Load())
		s.execute(t.Context(), "orders", 5, nil)
		time.Sleep(4 * time.Second)
		s.dashboard.turn <- struct{}{}
		history := s.dashboard.sampler.limiters["bucket"].columnsInOrder()
		<-s.dashboard.turn
		assert.EqualValues(t, 5, *history[len(history)-1].Rejected+*history[len(history)-2].Rejected)

		_ = s.view("/overview.json")
		assert.EqualValues(t, 1, described.Load())
		assert.Greater(t, b.calls.Load(), before)
		time.Sleep(watched + tick)
		asked := b.calls.Load()
		time.Sleep(time.Minute)
		assert.Equal(t, asked, b.calls.Load(), "no page is open any more")
	})
}

// describing is a strategy that describes itself by a function of the program.
type describing struct{ f func() }

func (d *describing) Execute(ctx context.Context, next pipeline.Next) (any, error) {
	return next.Run(ctx)
}
func (d *describing) Describe() (options, state any) {
	d.f()
	return nil, nil
}
func (d *describing) Name() string { return "Describing" }

// Whatever of the program or of a store hangs or panics, the pages come within a little more than a second, and say what
// is missing. It is not called again before it has returned.
func TestSnapshot_WhatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		var hangs atomic.Int32
		jobs := newFakeJobs()
		jobs.block = release
		s := newScene(t, func(s *scene, o *Options) {
			s.define("slow", func(b *registry.Builder) error {
				b.Add(&describing{f: func() { hangs.Add(1); <-release }})
				return nil
			})
			s.define("bad", func(b *registry.Builder) error {
				b.Add(&describing{f: func() { panic("no description") }})
				return nil
			})
			o.Jobs = jobs
		})
		for range 5 {
			began := time.Now()
			d := s.view("/overview.json")
			assert.LessOrEqual(t, time.Since(began), answerTimeout)
			assert.Equal(t, "the list has not come in time", d.JobsError)
			assert.Len(t, d.Limiters, 2)
			assert.Contains(t, s.html("/overview"), `<a href="jobs">throttled jobs</a>`, "no limiter of jobs has that name")
			assert.Contains(t, s.html("/pipelines"), "a strategy has not answered")
			time.Sleep(3 * time.Second)
		}
		assert.EqualValues(t, 1, hangs.Load())
		close(release)
		time.Sleep(describeAgain)
		assert.Empty(t, s.view("/overview.json").JobsError)
		assert.Contains(t, s.html("/pipelines?q=bad"), "a strategy has not answered")
		assert.NotContains(t, s.html("/pipelines?q=slow"), "a strategy has not answered")
	})
}

// While a shard is away, the limiters of other shards and of other stores are not as last known.
func TestSnapshot_LastKnownByShard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cluster := storetest.NewMemory()
		cluster.SetShards(func(name, key string) string {
			if name == "weir/probe" {
				return []string{"shard-1", "shard-2"}[len(key)%2]
			}
			return name
		})
		o := store.Options{NoListen: true, FailureThreshold: 1}
		stores := map[string]*store.Store{"cluster": weir.Must(store.New(cluster, &o)), "single": weir.Must(store.New(storetest.NewMemory(), &o))}
		s := newScene(t, func(s *scene, o *Options) {
			for name, st := range map[string]*store.Store{"shard-1": stores["cluster"], "shard-2": stores["cluster"], "elsewhere": stores["single"]} {
				s.define(name, func(b *registry.Builder) error {
					b.Add(ratelimit.New(registry.Shared(b, st, name, limiter.PerSecond(5, 5), nil), nil))
					return nil
				})
			}
			o.Stores = stores
		})
		lastKnown := func() (names []string) {
			for _, l := range s.view("/overview.json").Limiters {
				if l.LastKnown {
					names = append(names, l.Name)
				}
			}
			return names
		}
		assert.Empty(t, lastKnown())
		cluster.FailShard("shard-2", errBoom)
		for range 2 { // from the first call that fails
			time.Sleep(tick + time.Millisecond)
			assert.Equal(t, []string{"shard-2"}, lastKnown())
		}
		for _, st := range stores {
			t.Cleanup(func() { _ = st.Close() })
		}
	})
}

// A store whose backend hangs does no harm, and the trouble says that it is away.
func TestSnapshot_StoreThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &awayBackend{release: make(chan struct{})}
		var events Events
		st := weir.Must(store.New(b, &store.Options{NoListen: true, CallTimeout: 10 * time.Second, FailureThreshold: 1, OnEvent: events.OnStoreEvent("redis")}))
		s := newScene(t, func(s *scene, o *Options) {
			s.define("shared", func(b *registry.Builder) error {
				b.Add(ratelimit.New(registry.Shared(b, st, "shared", limiter.PerSecond(5, 5), nil), nil))
				return nil
			})
			o.Stores = map[string]*store.Store{"redis": st}
		})
		began := time.Now()
		d := s.view("/overview.json")
		assert.LessOrEqual(t, time.Since(began), answerTimeout)
		require.Len(t, d.Limiters, 3)
		for _, l := range d.Limiters {
			if l.Name == "shared" {
				assert.Equal(t, "store", l.Place)
				assert.Equal(t, "token bucket", l.Kind)
				assert.EqualValues(t, 5, *l.Available, "as last known")
			}
		}
		time.Sleep(30 * time.Second)
		synctest.Wait()
		d = s.view("/overview.json")
		require.Len(t, d.Stores, 1)
		assert.False(t, d.Stores[0].Available)
		for _, l := range d.Limiters {
			assert.Equal(t, l.Name == "shared", l.LastKnown, l.Name)
		}
		assert.Contains(t, s.get("/limiters.txt").Body.String(), "5 (last known)")
		assert.Contains(t, s.html("/limiters"), "as last known")
		assert.Equal(t, levelCritical, d.Trouble[0].Level)
		assert.Equal(t, "redis", d.Trouble[0].Name)
		close(b.release)
		t.Cleanup(func() { _ = st.Close() })
		s.dashboard.options.Stores = nil
	})
}

func TestFieldsOf(t *testing.T) {
	type inner struct {
		Some  int           `yaml:"some"`
		Empty string        `yaml:"empty,omitempty"`
		Wait  time.Duration `json:"wait"`
	}
	type options struct {
		inner
		Secret  string `yaml:"-"`
		Func    func()
		List    []inner `yaml:"list"`
		Map     map[string]int
		Order   limiter.QueueOrder `yaml:"order"`
		Pointer *inner             `yaml:"pointer"`
		Nil     *inner
		Any     any
		hidden  int
	}
	o := options{
		inner: inner{Some: 1}, Secret: "x", List: []inner{{Some: 2}, {Wait: time.Minute}}, Map: map[string]int{"b": 2, "a": 1},
		Pointer: &inner{Some: 3}, Any: 1.5, hidden: 4,
	}
	assert.Equal(t, "list [some 2, wait 0s; some 0, wait 1m], map.a 1, map.b 2, order oldest_first, pointer.some 3, pointer.wait 0s, any 1.5",
		fieldsOf(o).String())
	type loop struct{ Next *loop }
	l := &loop{}
	l.Next = l
	assert.Empty(t, fieldsOf(l), "it ends")
	type tree struct {
		Name     string
		Children []tree
	}
	deep := tree{Name: "lowest"}
	for range 2 * maxFieldDepth {
		deep = tree{Name: "x", Children: []tree{deep}}
	}
	assert.Contains(t, fieldsOf(deep).String(), "children [name x")
	assert.NotContains(t, fieldsOf(deep).String(), "lowest", "lists count, too")
	type ring struct{ Next []*ring }
	r := &ring{}
	r.Next = []*ring{r}
	assert.Len(t, fieldsOf(r), 1, "it ends")
	long := make([]int, 1000)
	assert.Equal(t, "[0; 0; 0; 0; 0; 0; 0; 0; 0; 0; …]", fieldsOf(long).String())
	assert.Empty(t, fieldsOf(nil))
	b, err := fieldsOf(limiter.PerSecond(1, 2)).MarshalJSON()
	require.NoError(t, err)
	assert.JSONEq(t, `{"token_limit":"2","tokens_per_period":"1","replenishment_period":"1s"}`, string(b))
}

// Pages that show the same snapshot are made at the same time.
func TestNewView_DoesNotWriteToTheSnapshot(t *testing.T) {
	names := []string{"orders", "", ""}
	snap := &snapshot{Limiters: []limiterState{{Name: "bucket", Pipelines: names[:1]}}, Files: []fileState{{Path: "weir.yaml", Pipelines: names[:1]}}}
	v := newView(snap, pageOverview, "bucket", formatJSON)
	assert.Len(t, v.Limiters, 1)
	assert.Empty(t, v.Files)
	assert.Equal(t, []string{"orders", "", ""}, names)
}

// A snapshot that was begun before an action does not hide what the action has done.
func TestSnapshot_ActionDuringASnapshot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		jobs := newFakeJobs()
		s := acting(t, func(_ *scene, o *Options) { o.Jobs = jobs })
		jobs.block = make(chan struct{})
		begun := make(chan struct{})
		go func() {
			defer close(begun)
			s.get("/limiters.json")
		}()
		synctest.Wait() // it has read the limiters, and waits for the jobs
		status, text := s.act(ActionOverride, "bucket", "set.token_limit", "7", "for", "1h", "reason", "test")
		require.Equal(t, http.StatusOK, status, text)
		close(jobs.block)
		<-begun
		assert.NotNil(t, s.view("/limiters.json?q=bucket").Limiters[0].Override)
	})
}

// The circuit of an address of the gateway only decides which address is asked first, so that it is no error if it is open.
func TestSnapshot_CircuitOfAddress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t, nil)
		const name = "gateway/orders/10.0.0.1:80"
		require.NoError(t, s.registry.Apply(t.Context(), registry.Change{Define: map[string]registry.BuildFunc{
			name: func(b *registry.Builder) error {
				b.Add(circuitbreaker.New(&circuitbreaker.Options{ConsecutiveFailures: 2}))
				return nil
			},
		}}))
		s.execute(t.Context(), name, 2, errBoom)
		time.Sleep(tick + time.Millisecond)
		synctest.Wait()
		d := s.view("/overview.json")
		require.Len(t, d.Trouble, 1)
		assert.Equal(t, name+"/CircuitBreaker", d.Trouble[0].Name)
		assert.Equal(t, levelWarning, d.Trouble[0].Level)
	})
}
