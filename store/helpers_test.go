package store_test

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/limiter/limitertest"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/backend"
	"github.com/weir-go/weir/store/storetest"
)

// A world is a store and the instances that use it, in a synctest bubble.
type world struct {
	*testing.T
	*hooked
	ctx    context.Context
	events events
}

func inWorld(t *testing.T, f func(t *testing.T, w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		f(t, &world{T: t, hooked: &hooked{Memory: storetest.NewMemory()}, ctx: t.Context()})
	})
}

// subtest returns f as a subtest in a world of its own.
func subtest(f func(t *testing.T, w *world)) func(t *testing.T) {
	return func(t *testing.T) { inWorld(t, f) }
}

// instance returns another Store on the same backend.
func (w *world) instance(o store.Options) *store.Store {
	o.OnEvent = w.events.add
	return newStore(w.T, w.hooked, o)
}

// bucket returns a bucket in another Store.
func (w *world) bucket(limit, refill int, period time.Duration, queue int, how *store.LimiterOptions) *store.Limiter {
	w.Helper()
	return must(w.instance(store.Options{}).TokenBucket("bucket", bucketOf(limit, refill, period, queue), how))(w.T)
}

var kinds = []limitertest.Kind{
	limitertest.Concurrency, limitertest.FixedWindow, limitertest.SlidingWindow, limitertest.TokenBucket, limitertest.Calendar,
}

func build(t testing.TB, s *store.Store, k limitertest.Kind, l limitertest.Limits, how *store.LimiterOptions) *store.Limiter {
	return must(s.Limiter("it", l.Of(k), how))(t)
}

func bucketOf(limit, refill int, period time.Duration, queue int) limiter.TokenBucketOptions {
	return limiter.TokenBucketOptions{TokenLimit: limit, TokensPerPeriod: refill, ReplenishmentPeriod: period, QueueLimit: queue}
}

func (w *world) concurrency(limit, queue int, o store.Options, how *store.LimiterOptions) *store.Limiter {
	w.Helper()
	return must(w.instance(o).Concurrency("seats", limiter.ConcurrencyOptions{PermitLimit: limit, QueueLimit: queue}, how))(w.T)
}

// try is TryAcquire, which must not fail.
func (w *world) try(l limiter.Limiter, n int) limiter.Lease {
	w.Helper()
	return must(l.TryAcquire(w.ctx, n))(w.T)
}

func (w *world) granted(l limiter.Limiter, n int) limiter.Lease {
	w.Helper()
	lease := w.try(l, n)
	require.True(w, lease.Acquired(), "%d permits", n)
	synctest.Wait() // what begins with the first question goes on behind it
	return lease
}

func (w *world) rejected(l limiter.Limiter, n int) limiter.Lease {
	w.Helper()
	lease := w.try(l, n)
	require.False(w, lease.Acquired(), "%d permits", n)
	synctest.Wait()
	return lease
}

// A waiting is a call of Acquire that may be waiting.
type waiting struct {
	lease  limiter.Lease
	err    error
	took   time.Duration
	cancel context.CancelFunc
	done   atomic.Bool
}

func (w *world) acquire(l limiter.Limiter, n int) *waiting {
	ctx, cancel := context.WithCancel(w.ctx)
	a := &waiting{cancel: cancel}
	begun := time.Now()
	go func() {
		defer cancel()
		a.lease, a.err = l.Acquire(ctx, n)
		a.took = time.Since(begun)
		a.done.Store(true)
	}()
	synctest.Wait()
	return a
}

// served expects that the call has returned with permits.
func (w *world) served(a *waiting) limiter.Lease {
	w.Helper()
	require.True(w, a.done.Load(), "it still waits")
	require.NoError(w, a.err)
	require.True(w, a.lease.Acquired(), "it was rejected: %s", a.lease.Reason())
	return a.lease
}

func (w *world) waits(a *waiting) {
	w.Helper()
	require.False(w, a.done.Load(), "it does not wait any more")
}

func (w *world) pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// timed returns how long f takes.
func timed(f func()) time.Duration {
	begun := time.Now()
	f()
	return time.Since(begun)
}

// events are the events of a Store.
type events struct {
	mu  sync.Mutex
	all []store.Event
}

func (e *events) add(one store.Event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.all = append(e.all, one)
}

// of returns the events of a kind, once all goroutines wait.
func (e *events) of(k store.EventKind) (some []store.Event) {
	synctest.Wait()
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, one := range e.all {
		if one.Kind == k {
			some = append(some, one)
		}
	}
	return some
}

// hooked is a Memory whose methods can fail.
type hooked struct {
	*storetest.Memory
	mu     sync.Mutex
	before func(method string) error // an error: nothing is done
	after  func(method string) error // it was done
	see    func([]*backend.Batch)

	underWay atomic.Int32 // calls of Decide
}

func (h *hooked) hook(before, after func(method string) error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.before, h.after = before, after
}

// failing is a hook with which some methods fail.
func failing(err error, methods ...string) func(method string) error {
	return func(method string) error {
		if slices.Contains(methods, method) {
			return err
		}
		return nil
	}
}

// slow is a hook with which one method takes longer.
func slow(by time.Duration, which string) func(method string) error {
	return func(method string) error {
		if method == which {
			time.Sleep(by)
		}
		return nil
	}
}

func (h *hooked) around(method string, f func() error) error {
	h.mu.Lock()
	before, after := h.before, h.after
	h.mu.Unlock()
	if before != nil {
		if err := before(method); err != nil {
			return err
		}
	}
	if err := f(); err != nil {
		return err
	}
	if after != nil {
		return after(method)
	}
	return nil
}

func (h *hooked) Decide(ctx context.Context, b []*backend.Batch) error {
	if h.see != nil {
		h.see(b)
	}
	h.underWay.Add(1)
	defer h.underWay.Add(-1)
	return h.around("Decide", func() error { return h.Memory.Decide(ctx, b) })
}

func (h *hooked) Replace(ctx context.Context, all []*backend.Replacement) error {
	return h.around("Replace", func() error { return h.Memory.Replace(ctx, all) })
}

func (h *hooked) Acquire(ctx context.Context, x []*backend.LeaseRequest) error {
	return h.around("Acquire", func() error { return h.Memory.Acquire(ctx, x) })
}

func (h *hooked) Renew(ctx context.Context, x []*backend.LeaseRequest) error {
	return h.around("Renew", func() error { return h.Memory.Renew(ctx, x) })
}

func (h *hooked) Release(ctx context.Context, x []*backend.LeaseRequest) error {
	return h.around("Release", func() error { return h.Memory.Release(ctx, x) })
}

func (h *hooked) Load(ctx context.Context, name string) (d *backend.Definition, now int64, err error) {
	err = h.around("Load", func() error { d, now, err = h.Memory.Load(ctx, name); return err })
	return d, now, err
}

func (h *hooked) Define(ctx context.Context, old int64, next *backend.Definition) (ok bool, err error) {
	err = h.around("Define", func() error { ok, err = h.Memory.Define(ctx, old, next); return err })
	return ok, err
}

func (h *hooked) Listen(ctx context.Context, ready func(), notice func(backend.Notice)) error {
	return h.around("Listen", func() error { return h.Memory.Listen(ctx, ready, notice) })
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func newStore(t testing.TB, b backend.Backend, o store.Options) *store.Store {
	s := must(store.New(b, &o))(t)
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// must(f())(t) returns the result of f, which must not fail.
func must[L any](l L, err error) func(testing.TB) L {
	return func(t testing.TB) L {
		t.Helper()
		require.NoError(t, err)
		return l
	}
}
