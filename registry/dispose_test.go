package registry_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/registry"
	"github.com/weir-go/weir/strategies/ratelimit"
)

func one(o int) limiter.ConcurrencyOptions {
	return limiter.ConcurrencyOptions{PermitLimit: o, QueueLimit: 10}
}

// noted writes down everything that happens when a version of it is disposed of.
func noted(j *journal) registry.BuildFunc {
	return func(b *registry.Builder) error {
		b.Concurrency("slots", one(1))
		b.OnDispose(j.note("OnDispose 1", nil))
		b.Add(&closing{j.note("close 1", nil)}, &closing{j.note("close 2", nil)})
		b.OnDispose(j.note("OnDispose 2", nil))
		return nil
	}
}

var order = []string{"OnDispose 2", "OnDispose 1", "close 1", "close 2"}

// noteLimiters writes down which limiters come and go.
func noteLimiters(j *journal) func(string, limiter.StatisticsProvider) func() {
	return func(name string, _ limiter.StatisticsProvider) func() {
		j.add("+%s", name)
		return func() { j.add("-%s", name) }
	}
}

func TestOnDispose_Order(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var j journal
		r := open(t, &registry.Options{ObserveLimiter: noteLimiters(&j)})
		require.NoError(t, r.Define("orders", noted(&j)))
		assert.Equal(t, []string{"+slots"}, j.take(), "PR13")
		require.NoError(t, r.Reload(t.Context()))
		synctest.Wait()
		assert.Equal(t, order, j.take(), "the limiter is kept")
		require.NoError(t, r.Remove(t.Context(), "orders"))
		synctest.Wait()
		assert.Equal(t, append(order, "-slots"), j.take())
	})
}

// Who waits in a limiter's queue has begun, and goes on to the end on that version.
func TestOnDispose_WaitsForTheQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := open(t, &registry.Options{DrainTimeout: -1})
		var j journal
		var n numbered
		p := define(t, r, "orders", func(b *registry.Builder) error {
			if n.made() == 0 { // the limiter is of this version only
				b.Add(ratelimit.New(b.Concurrency("slots", one(1)), nil))
			}
			b.OnDispose(j.note("disposed", nil))
			return n.build(b)
		})
		first := hold(t, p)
		waiting := make(chan string)
		go func() {
			v, err := pipeline.ExecuteValue(t.Context(), p, func(context.Context) (string, error) { return "done", nil })
			assert.NoError(t, err)
			waiting <- v
		}()
		synctest.Wait()
		require.NoError(t, r.Reload(t.Context()))
		time.Sleep(time.Hour)
		synctest.Wait()
		assert.Empty(t, j.take())
		assert.Equal(t, 1, r.OwnedLimiters())
		assert.Equal(t, 2, versionOf(t, p))
		first()
		assert.Equal(t, "done, ended on 1", <-waiting)
		synctest.Wait()
		assert.Equal(t, []string{"disposed"}, j.take())
		assert.Zero(t, r.OwnedLimiters())
	})
}

func TestDrainTimeout(t *testing.T) {
	for name, o := range map[string]registry.Options{"30 s": {}, "5 s": {DrainTimeout: 5 * time.Second}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var l recorder
				var j journal
				o.Listener = &l
				r := open(t, &o)
				require.NoError(t, r.Define("orders", noted(&j)))
				end := hold(t, get(t, r, "orders"))
				require.NoError(t, r.Reload(t.Context()))
				l.take()
				most, err := time.ParseDuration(name[:len(name)-2] + "s")
				require.NoError(t, err)

				time.Sleep(most - 1)
				synctest.Wait()
				assert.Empty(t, j.take(), "ET3")
				time.Sleep(time.Nanosecond)
				synctest.Wait()
				assert.Equal(t, order, j.take(), "disposing goes ahead")
				assert.Equal(t, []string{"DisposeFailed orders"}, l.take())
				assert.ErrorIs(t, l.last(t, registry.EventDisposeFailed).Err, registry.ErrDrainTimeout)
				assert.ErrorContains(t, l.last(t, registry.EventDisposeFailed).Err, "orders")

				assert.Equal(t, "began on <nil>", end())
				synctest.Wait()
				assert.Empty(t, j.take(), "and only once")
				assert.Empty(t, l.take())
			})
		})
	}
}

func TestOnDispose_ErrorsAndPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l recorder
		var j journal
		errs := []error{errors.New("boom 1"), errors.New("boom 2")}
		r := registry.New(&registry.Options{Listener: &l, ObserveLimiter: noteLimiters(&j)})
		require.NoError(t, r.Define("orders", func(b *registry.Builder) error {
			b.Concurrency("slots", one(1))
			b.Concurrency(time.Now().String(), one(1))
			b.OnDispose(j.note("OnDispose 1", nil))
			b.OnDispose(func() error { panic("ouch 2") })
			b.OnDispose(j.note("OnDispose 3", errs[0]))
			b.Add(
				&closing{j.note("close 1", errs[1])},
				&closing{func() error { panic("ouch 4") }},
				&closing{j.note("close 3", nil)},
			)
			return nil
		}))
		time.Sleep(time.Second)
		require.NoError(t, r.Reload(t.Context()), "RC4: that is behind it")
		synctest.Wait()
		assert.ElementsMatch(t, []string{"OnReload orders", "DisposeFailed orders"}, l.take(), "they run at once")
		var limiters, disposing []string // a new limiter is observed while the replaced version is disposed of
		for _, line := range j.take() {
			if strings.ContainsAny(line[:1], "+-") {
				limiters = append(limiters, line[:1])
			} else {
				disposing = append(disposing, line)
			}
		}
		assert.ElementsMatch(t, []string{"+", "+", "+", "-"}, limiters)
		assert.Equal(t, []string{"OnDispose 3", "OnDispose 1", "close 1", "close 3"}, disposing)
		check := func(err error) {
			t.Helper()
			assert.ErrorIs(t, err, errs[0])
			assert.ErrorIs(t, err, errs[1])
			assert.ErrorContains(t, err, "ouch 2")
			assert.ErrorContains(t, err, "ouch 4")
		}
		check(l.last(t, registry.EventDisposeFailed).Err)
		check(r.Close(t.Context()))
		assert.Zero(t, r.OwnedLimiters())
	})
}
