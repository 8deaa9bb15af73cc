package registry_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
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
	"github.com/weir-go/weir/strategies/ratelimit"
)

// An overrideLog is a listener that keeps the events about overrides.
type overrideLog struct {
	journal

	also func(ctx context.Context, e pipeline.Event) // can be nil
}

func (l *overrideLog) Hooks() pipeline.Hooks {
	return pipeline.Hooks{
		OnEvent: l.OnEvent,
	}
}

func (l *overrideLog) OnEvent(ctx context.Context, e pipeline.Event) {
	o, ok := e.Result.(registry.Override)
	if !ok {
		return
	}
	line := fmt.Sprintf("%s %v %s by %s because %s", e.Name, e.Severity, e.Source, o.By, o.Reason)
	if o.Ended != "" {
		line += ": " + o.Ended
	}
	if e.Err != nil {
		line += ": " + e.Err.Error()
	}
	l.add("%s", line)
	if l.also != nil {
		l.also(ctx, e)
	}
}

// info returns what the registry says of the limiter "l".
func info(t *testing.T, r *registry.Registry) registry.LimiterInfo {
	t.Helper()
	i, ok := maps.Collect(r.Limiters())["l"]
	require.True(t, ok)
	return i
}

// for1h is an override of "l" for an hour.
func for1h(options limiter.Options) registry.Override {
	return registry.Override{Limiter: "l", Options: options, Until: time.Now().Add(time.Hour), By: "ann", Reason: "a sale"}
}

// limitOf returns the permits of a limiter's options.
func limitOf(o limiter.Options) int { return o.Limits().Permits }

// plain returns what pipelines want of a limiter that has only limits.
func plain(o limiter.Options) registry.LimiterConfig {
	return registry.LimiterConfig{Limits: o.Limits()}
}

func TestOverride(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var heard overrideLog
		r := open(t, &registry.Options{Listener: &heard})
		s := &shared{n: 10}
		require.NoError(t, r.Define("orders", s.build))
		o, start := for1h(bucketOptions(7)), time.Now()
		require.NoError(t, r.Override(t.Context(), o))
		assert.Equal(t, []string{"OnLimiterOverridden Warning l by ann because a sale"}, heard.take())
		o.Since = start
		assert.Equal(t, o, *info(t, r).Override)

		// A reload keeps it, and its options come into force at the end.
		time.Sleep(30 * time.Minute)
		s.n = 12
		require.NoError(t, r.Reload(t.Context()))
		assert.Empty(t, heard.take())
		time.Sleep(30*time.Minute - time.Nanosecond)
		synctest.Wait()
		assert.Equal(t, 7, s.l.Limits().Permits, "not yet")
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		assert.Equal(t, 12, s.l.Limits().Permits)
		assert.Equal(t, []string{"OnLimiterOverrideEnded Information l by ann because a sale: its time is over"}, heard.take())
	})
}

// shared builds the token bucket "l".
type shared struct {
	n   int
	l   *limiter.TokenBucket
	err error
}

func (s *shared) build(b *registry.Builder) error {
	s.l = b.TokenBucket("l", bucketOptions(s.n))
	return s.err
}

func TestOverride_Partitioned(t *testing.T) {
	options := bucketOptions
	synctest.Test(t, func(t *testing.T) {
		r := open(t, nil)
		each, whole := options(10), limiter.PartitionedOptions{IdleTimeout: time.Hour}
		var l *limiter.PartitionedLimiter[string, string]
		require.NoError(t, r.Define("orders", func(b *registry.Builder) error {
			l = registry.Partitioned(b, "l", same, each, &whole)
			return nil
		}))
		spend(t, l, "known", 4)
		require.NoError(t, r.Override(t.Context(), for1h(options(7))))
		assert.Equal(t, 3, left(t, l, "known"))
		spend(t, l, "new", 1)
		assert.Equal(t, 6, left(t, l, "new"))
		spend(t, l, "closed by the program", 1)
		require.NoError(t, maps.Collect(l.All())["closed by the program"].(*limiter.TokenBucket).Close())
		assert.Equal(t, registry.LimiterConfig{Limits: options(7).Limits(), Partitions: whole}, info(t, r).Options)

		// The limits of each key stay; the options of the whole change at once.
		each, whole.MaxPartitions = options(12), 2
		require.NoError(t, r.Reload(t.Context()))
		assert.Equal(t, 3, left(t, l, "known"))
		assert.Equal(t, registry.LimiterConfig{Limits: options(7).Limits(), Partitions: whole}, info(t, r).Options)
		assert.Equal(t, registry.LimiterConfig{Limits: options(12).Limits(), Partitions: whole}, info(t, r).Configured)

		require.NoError(t, r.EndOverride(t.Context(), "l", "ann"))
		assert.Equal(t, 8, left(t, l, "known"))
		assert.Equal(t, 11, left(t, l, "new"))
		assert.Equal(t, info(t, r).Configured, info(t, r).Options)
	})
}

// An override that ends while the Listener is told of its beginning: the Listener is told of the end after that.
func TestOverride_EventsInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var heard overrideLog
		r := open(t, &registry.Options{Listener: &heard})
		require.NoError(t, r.Define("orders", (&shared{n: 10}).build))
		heard.also = func(ctx context.Context, e pipeline.Event) {
			if e.Name == registry.EventOverridden {
				assert.NoError(t, r.EndOverride(ctx, "l", "bob"))
				assert.Len(t, heard.take(), 1)
			}
		}
		require.NoError(t, r.Override(t.Context(), for1h(bucketOptions(5))))
		assert.Equal(t, []string{"OnLimiterOverrideEnded Information l by ann because a sale: ended by bob"}, heard.take())
	})
}

func TestOverride_Errors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := registry.New(nil)
		s := &shared{n: 10}
		require.NoError(t, r.Define("orders", s.build))
		for name, c := range map[string]struct {
			change func(*registry.Override)
			want   string
		}{
			"nothing set":   {func(o *registry.Override) { *o = registry.Override{} }, "registry: Limiter must be set; Options must be set; Until must be set; By must be set; Reason must be set"},
			"past":          {func(o *registry.Override) { o.Until = time.Now() }, "registry: Until must be in the future, got \"2000-01-01T00:00:00Z\""},
			"far":           {func(o *registry.Override) { o.Until = time.Now().AddDate(200, 0, 0) }, "registry: Until must be at most 100 years away, got \"2200-01-01T00:00:00Z\""},
			"blank":         {func(o *registry.Override) { o.By, o.Reason = " ", "\n" }, "registry: By must be set; Reason must be set"},
			"long":          {func(o *registry.Override) { o.By, o.Reason = strings.Repeat("x", 257), strings.Repeat("x", 1025) }, "registry: By must have at most 256 bytes, got 257; Reason must have at most 1024 bytes, got 1025"},
			"not text":      {func(o *registry.Override) { o.By = "\xff" }, `registry: By must be valid UTF-8, got "\xff"`},
			"another kind":  {func(o *registry.Override) { o.Options = windowOptions(1) }, "registry: Options must be a limiter.TokenBucketOptions, got a limiter.FixedWindowOptions"},
			"wrong options": {func(o *registry.Override) { o.Options = bucketOptions(-3) }, "registry: Options.TokenLimit must be at least 1, got -3"},
		} {
			o := for1h(bucketOptions(5))
			c.change(&o)
			err := r.Override(t.Context(), o)
			require.EqualError(t, err, c.want, name)
			require.ErrorIs(t, err, weir.ErrInvalidOptions, name)
			assert.Nil(t, info(t, r).Override, name)
			assert.Equal(t, 10, s.l.Limits().Permits, name)
		}
		o := for1h(bucketOptions(5))
		o.Limiter = "other"
		require.EqualError(t, r.Override(t.Context(), o), `registry: no pipeline in force uses a limiter of that name: "other"`)
		require.ErrorIs(t, r.EndOverride(t.Context(), "other", "ann"), registry.ErrNoLimiter)
		require.EqualError(t, r.EndOverride(t.Context(), "l", ""), "registry: by must be set")
		require.NoError(t, r.Close(t.Context()))
		require.ErrorIs(t, r.Override(t.Context(), for1h(bucketOptions(5))), registry.ErrClosed)
		require.ErrorIs(t, r.EndOverride(t.Context(), "l", "ann"), registry.ErrClosed)
	})
}

// The override ends with the limiter: when no version uses it any more, also none that drains. A version that asks for it before
// finds it as it is.
func TestOverride_EndsWithItsLimiter(t *testing.T) {
	for name, kind := range map[string]registry.BuildFunc{
		"removed":      with(),
		"another kind": func(b *registry.Builder) error { b.FixedWindow("l", windowOptions(3)); return nil },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var heard overrideLog
				r := open(t, &registry.Options{Listener: &heard})
				s := &shared{n: 10}
				end := hold(t, define(t, r, "orders", s.build))
				old := s.l
				require.NoError(t, r.Override(t.Context(), for1h(bucketOptions(2))))
				heard.take()
				require.NoError(t, r.Apply(t.Context(), registry.Change{Define: builds{"orders": kind}}))
				require.ErrorIs(t, r.EndOverride(t.Context(), "l", "ann"), map[string]error{
					"removed": registry.ErrNoLimiter, "another kind": registry.ErrNotOverridden,
				}[name])
				require.NoError(t, r.Apply(t.Context(), registry.Change{Define: builds{"orders": s.build}}))
				assert.Same(t, old, s.l)
				assert.Equal(t, plain(bucketOptions(2)), info(t, r).Options)
				require.NoError(t, r.Apply(t.Context(), registry.Change{Define: builds{"orders": kind}}))
				synctest.Wait()
				assert.Empty(t, heard.take())
				end()
				synctest.Wait()
				assert.Equal(t, []string{"OnLimiterOverrideEnded Information l by ann because a sale: no pipeline uses the limiter"}, heard.take())
			})
		})
	}
}

// A reload that fails leaves the override and the configured options as they are.
func TestOverride_ReloadFails(t *testing.T) {
	var heard overrideLog
	r := open(t, &registry.Options{Listener: &heard})
	s := &shared{n: 10}
	require.NoError(t, r.Define("orders", s.build))
	refuse := errors.New("refused")
	options := 1
	require.NoError(t, r.Define("kept", func(b *registry.Builder) error {
		registry.Keep(b, "k", options, registry.Kept[*int, int]{
			Kind:        "number",
			Make:        func(n int) (*int, error) { return &n, nil },
			Reconfigure: func(*int, int) error { return refuse },
		})
		return nil
	}))
	require.NoError(t, r.Override(t.Context(), for1h(bucketOptions(2))))
	heard.take()
	s.n, s.err = 12, errBoom
	require.ErrorIs(t, r.Reload(t.Context()), errBoom)
	s.err, options = nil, 2
	require.ErrorIs(t, r.Reload(t.Context()), refuse)
	assert.Equal(t, 2, s.l.Limits().Permits)
	assert.Equal(t, plain(bucketOptions(10)), info(t, r).Configured)
	assert.Empty(t, heard.take())
	require.NoError(t, r.EndOverride(t.Context(), "l", "ann"))
	assert.Equal(t, 10, s.l.Limits().Permits)
}

// Close ends all overrides, stops their timers, and says so.
func TestOverride_Close(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var heard overrideLog
		r := registry.New(&registry.Options{Listener: &heard})
		heard.also = func(ctx context.Context, e pipeline.Event) {
			if e.Name == registry.EventOverrideEnded {
				assert.Error(t, r.Close(ctx), "it would wait for itself")
			}
		}
		s := &shared{n: 10}
		require.NoError(t, r.Define("orders", s.build))
		require.NoError(t, r.Override(t.Context(), for1h(bucketOptions(2))))
		heard.take()
		require.NoError(t, r.Close(t.Context()))
		assert.Equal(t, []string{"OnLimiterOverrideEnded Information l by ann because a sale: the registry was closed"}, heard.take())
		time.Sleep(2 * time.Hour)
		synctest.Wait()
		assert.Empty(t, heard.take())
	})
}

// Overrides, their ends by hand and in time, reloads that change the limits or remove the limiter, first builds and
// executions at once: at the end the limits are those of the configuration, and each start has its end.
func TestOverride_ConcurrentSafe(t *testing.T) {
	for round := range 5 {
		t.Run(fmt.Sprint(round), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { testOverridesAtOnce(t, round%2 == 1) })
		})
	}
}

func testOverridesAtOnce(t *testing.T, partitioned bool) {
	var began, ended atomic.Int64
	r := registry.New(&registry.Options{Listener: pipeline.ListenerFunc(func(_ context.Context, e pipeline.Event) {
		switch e.Name {
		case registry.EventOverridden:
			began.Add(1)
		case registry.EventOverrideEnded:
			ended.Add(1)
			assert.NoError(t, e.Err)
		}
	})})
	var configured atomic.Int64
	configured.Store(5)
	build := func(b *registry.Builder) error {
		o := bucketOptions(int(configured.Load()))
		if !partitioned {
			b.Add(ratelimit.New(b.TokenBucket("l", o), nil))
			return nil
		}
		b.Add(ratelimit.NewPartitioned(registry.Partitioned(b, "l", same, o, nil), pipeline.Operation, nil))
		return nil
	}
	p := define(t, r, "orders", build)
	wants := func(err error, allowed ...error) {
		if err != nil && !isAny(err, allowed) {
			t.Error(err)
		}
	}
	var wg sync.WaitGroup
	each := func(f func(i int)) {
		wg.Go(func() {
			for i := range 60 {
				f(i)
				if i%5 == 0 {
					time.Sleep(time.Duration(i) * time.Microsecond)
				}
			}
		})
	}
	for n := range 3 {
		each(func(i int) {
			o := for1h(bucketOptions(10 + n + i))
			o.Until = time.Now().Add(time.Duration(1+i) * time.Microsecond)
			wants(r.Override(t.Context(), o), registry.ErrNoLimiter)
		})
	}
	each(func(int) {
		wants(r.EndOverride(t.Context(), "l", "bob"), registry.ErrNotOverridden, registry.ErrNoLimiter)
	})
	each(func(i int) {
		configured.Store(int64(5 + i))
		wants(r.Reload(t.Context()), registry.ErrLimiterConflict)
	})
	each(func(i int) {
		define := map[string]registry.BuildFunc{"orders": build}
		if i%3 == 0 {
			define["orders"] = with()
		}
		wants(r.Apply(t.Context(), registry.Change{Define: define}), registry.ErrLimiterConflict)
	})
	each(func(i int) {
		_, err := r.GetInstance("orders", fmt.Sprint(i%3))
		wants(err, registry.ErrLimiterConflict)
		wants(r.RemoveInstance("orders", fmt.Sprint(i%3)))
	})
	each(func(i int) {
		ctx := pipeline.WithOperation(t.Context(), fmt.Sprint(i))
		wants(p.Execute(ctx, nothing), pipeline.ErrRejected)
		for range r.Limiters() {
		}
	})
	wg.Wait()
	time.Sleep(time.Second)
	synctest.Wait()
	require.NoError(t, r.Apply(t.Context(), registry.Change{Define: map[string]registry.BuildFunc{"orders": build}}))
	i := info(t, r)
	assert.Nil(t, i.Override)
	assert.Equal(t, i.Configured, i.Options)
	if l, ok := i.Limiter.(*limiter.TokenBucket); ok {
		assert.Equal(t, i.Configured, plain(l.Limits()))
	}
	assert.Positive(t, began.Load())
	assert.Equal(t, began.Load(), ended.Load())

	require.NoError(t, r.Close(t.Context()))
	assert.Zero(t, r.OwnedLimiters())
}

// While a function of the program reconfigures something, Override waits, and so does the end of an override.
func TestOverride_WaitsForAReconfiguration(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := open(t, nil)
		s, options, leave := &shared{n: 10}, 1, make(chan struct{})
		require.NoError(t, r.Define("orders", func(b *registry.Builder) error {
			registry.Keep(b, "k", options, registry.Kept[*int, int]{
				Kind:        "number",
				Make:        func(n int) (*int, error) { return &n, nil },
				Reconfigure: func(*int, int) error { <-leave; return nil },
			})
			return s.build(b)
		}))
		require.NoError(t, r.Override(t.Context(), for1h(bucketOptions(2))))
		s.n, options = 12, 2
		reloaded := make(chan error)
		go func() { reloaded <- r.Reload(t.Context()) }()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorIs(t, r.Override(ctx, for1h(bucketOptions(3))), context.DeadlineExceeded)
		time.Sleep(2 * time.Hour) // the end of the override waits for as long as it takes
		synctest.Wait()
		assert.Equal(t, 2, s.l.Limits().Permits)
		close(leave)
		require.NoError(t, <-reloaded)
		synctest.Wait()
		assert.Equal(t, 12, s.l.Limits().Permits)
		assert.Nil(t, info(t, r).Override)
	})
}

// An override ends in time for executions that drain after Close.
func TestOverride_EndsInTimeAfterClose(t *testing.T) {
	for range 20 {
		synctest.Test(t, func(t *testing.T) {
			r := registry.New(&registry.Options{DrainTimeout: -1})
			s := &shared{n: 10}
			require.NoError(t, r.Define("orders", s.build))
			end := hold(t, get(t, r, "orders"))
			require.NoError(t, r.Override(t.Context(), for1h(bucketOptions(2))))
			closed := make(chan error)
			go func() { closed <- r.Close(t.Context()) }()
			time.Sleep(2 * time.Hour)
			assert.Equal(t, 10, s.l.Limits().Permits)
			end()
			require.NoError(t, <-closed)
		})
	}
}
