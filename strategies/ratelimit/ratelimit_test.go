package ratelimit_test

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/limiter/custom"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/strategies/ratelimit"
)

var errBoom = errors.New("boom")

// fake is a limiter that answers what it is told to, and notes what it is asked.
type fake struct {
	answer           limiter.Lease
	err              error
	acquired, tried  []int
	released, closed int
}

func granting() *fake {
	f := new(fake)
	f.answer = custom.Granted(1, func() { f.released++ })
	return f
}

func rejecting(after time.Duration, reason string) *fake {
	return &fake{answer: custom.Rejected(after, reason)}
}

func (f *fake) TryAcquire(_ context.Context, n int) (limiter.Lease, error) {
	f.tried = append(f.tried, n)
	return f.answer, f.err
}

func (f *fake) Acquire(_ context.Context, n int) (limiter.Lease, error) {
	f.acquired = append(f.acquired, n)
	return f.answer, f.err
}

func (f *fake) Close() error { f.closed++; return nil }

var source = pipeline.Source{Pipeline: "orders", Strategy: "RateLimiter"}

// observe builds a pipeline of one strategy and notes its events and their order.
func observe(s *ratelimit.Strategy, events *[]pipeline.Event, order *[]string) *pipeline.Pipeline {
	return weir.Must(pipeline.Config{Name: "orders", Strategies: []pipeline.Strategy{s},
		Listener: pipeline.ListenerFunc(func(_ context.Context, e pipeline.Event) {
			if e.Source.Strategy == "" {
				return // the pipeline's own
			}
			*events, *order = append(*events, e), append(*order, e.Name)
		})}.Build())
}

func nothing(context.Context) error { return nil }

func TestStrategy_HoldsTheLease(t *testing.T) {
	f := granting()
	p := weir.Must(pipeline.New("orders", ratelimit.New(f, nil)))
	err := p.Execute(t.Context(), func(context.Context) error {
		assert.Zero(t, f.released)
		return errBoom
	})
	assert.Same(t, errBoom, err)
	assert.Equal(t, 1, f.released)
	assert.Equal(t, []int{1}, f.acquired)
	assert.Empty(t, f.tried)
}

// failsafe-go's bulkhead never gets the permit back.
func TestStrategy_ReleasesAfterPanicAndGoexit(t *testing.T) {
	for name, leave := range map[string]func(){"panic": func() { panic("boom") }, "goexit": runtime.Goexit} {
		t.Run(name, func(t *testing.T) {
			f := granting()
			p := weir.Must(pipeline.New("orders", ratelimit.New(f, nil)))
			var recovered any
			var wg sync.WaitGroup
			wg.Go(func() {
				defer func() { recovered = recover() }()
				_ = p.Execute(t.Context(), func(context.Context) error { leave(); return nil })
				t.Error("it came back")
			})
			wg.Wait()
			assert.Equal(t, 1, f.released)
			if name == "panic" {
				assert.Equal(t, "boom", recovered)
			}
		})
	}
}

func TestStrategy_Rejection(t *testing.T) {
	f := rejecting(4*time.Second, "queue limit reached")
	var events []pipeline.Event
	var order []string
	var told ratelimit.Rejection
	p := observe(ratelimit.New(f, &ratelimit.Options{OnRejected: func(_ context.Context, r ratelimit.Rejection) error {
		order, told = append(order, "OnRejected"), r
		return nil
	}}), &events, &order)

	err := p.Execute(t.Context(), func(context.Context) error { t.Error("it ran"); return nil })
	assert.ErrorIs(t, err, pipeline.ErrRejected)
	rejected, ok := errors.AsType[*ratelimit.RejectedError](err)
	require.True(t, ok)
	assert.Equal(t, ratelimit.RejectedError{Reason: "queue limit reached", Source: source, Lease: f.answer}, *rejected)
	assert.Equal(t, ratelimit.Rejection{Source: source, Lease: f.answer}, told)
	assert.Equal(t, []string{"OnRateLimiterRejected", "OnRejected"}, order, "the event comes first")
	assert.Equal(t, []pipeline.Event{{Name: ratelimit.EventRejected, Severity: pipeline.SeverityError, Source: source, Err: rejected}}, events)

	d, ok := pipeline.RetryAfter(err)
	assert.True(t, ok)
	assert.Equal(t, 4*time.Second, d)
}

func TestOptions_OnRejected(t *testing.T) {
	p := weir.Must(pipeline.New("orders", ratelimit.New(rejecting(0, ""), &ratelimit.Options{
		OnRejected: func(context.Context, ratelimit.Rejection) error { return errBoom },
	})))
	assert.Same(t, errBoom, p.Execute(t.Context(), nothing))
}

func TestRejectedError_Error(t *testing.T) {
	for want, f := range map[string]*fake{
		"ratelimit: orders/RateLimiter: rejected":                                      rejecting(0, ""),
		"ratelimit: orders/RateLimiter: rejected: limit lowered":                       rejecting(0, "limit lowered"),
		"ratelimit: orders/RateLimiter: rejected: queue limit reached, retry after 4s": rejecting(4*time.Second, "queue limit reached"),
	} {
		p := weir.Must(pipeline.New("orders", ratelimit.New(f, nil)))
		assert.EqualError(t, p.Execute(t.Context(), nothing), want)
	}
	_, ok := pipeline.RetryAfter(&ratelimit.RejectedError{})
	assert.False(t, ok, "not known is not 0")
}

func TestStrategy_ErrorOfTheLimiter(t *testing.T) {
	f := granting()
	f.err = limiter.ErrClosed
	var events []pipeline.Event
	p := observe(ratelimit.New(f, &ratelimit.Options{OnRejected: func(context.Context, ratelimit.Rejection) error {
		t.Error("it is no rejection")
		return nil
	}}), &events, new([]string))
	err := p.Execute(t.Context(), func(context.Context) error { t.Error("it ran"); return nil })
	assert.ErrorIs(t, err, limiter.ErrClosed)
	assert.NotErrorIs(t, err, pipeline.ErrRejected)
	assert.EqualError(t, err, "ratelimit: orders/RateLimiter: limiter: closed")
	assert.Empty(t, events)
	assert.Equal(t, 1, f.released, "a lease that came with the error is not kept")
}

func TestOptions_Permits(t *testing.T) {
	type cost struct{}
	f := granting()
	p := weir.Must(pipeline.New("orders", ratelimit.New(f, &ratelimit.Options{
		Permits: func(ctx context.Context) int { n, _ := ctx.Value(cost{}).(int); return n },
	})))
	for _, n := range []int{7, 0} {
		require.NoError(t, p.Execute(context.WithValue(t.Context(), cost{}, n), nothing))
	}
	assert.Equal(t, []int{7, 0}, f.acquired)
	err := p.Execute(context.WithValue(t.Context(), cost{}, -2), nothing)
	assert.ErrorIs(t, err, limiter.ErrPermitCount)
	assert.ErrorContains(t, err, "orders/RateLimiter")
	assert.Equal(t, []int{7, 0}, f.acquired, "whatever the limiter would say")
}

func TestStrategy_CloseClosesItsOwnLimiter(t *testing.T) {
	f := granting()
	given := weir.Must(pipeline.New("orders", ratelimit.New(f, nil)))
	require.NoError(t, given.Close())
	assert.Zero(t, f.closed)

	own := ratelimit.New(nil, nil)
	stats := own.Limiter().(limiter.StatisticsProvider).Statistics
	assert.EqualValues(t, 1000, stats().AvailablePermits)
	p := weir.Must(pipeline.New("orders", own))
	require.NoError(t, p.Execute(t.Context(), func(context.Context) error {
		assert.EqualValues(t, 999, stats().AvailablePermits)
		return nil
	}))
	assert.EqualValues(t, 1000, stats().AvailablePermits)
	require.NoError(t, p.Close())
	_, err := own.Limiter().Acquire(t.Context(), 1)
	assert.ErrorIs(t, err, limiter.ErrClosed)
}

func TestStrategy_Name(t *testing.T) {
	assert.Equal(t, "RateLimiter", ratelimit.New(granting(), nil).Name())
	assert.Equal(t, "Tenant", ratelimit.New(granting(), &ratelimit.Options{Name: "Tenant"}).Name())
}

func TestStrategy_Validate(t *testing.T) {
	const noLimiter, noResource = "Limiter must not be nil", "Resource must not be nil"
	who := func(context.Context) string { return "" }
	var typedNil *fake
	var missing limiter.Partitioned[string]
	for _, c := range []struct {
		strategy *ratelimit.Strategy
		want     string
	}{
		{ratelimit.New(typedNil, nil), noLimiter},
		{ratelimit.NewPartitioned(missing, who, nil), noLimiter},
		{ratelimit.NewPartitioned[string](tenants{}, nil, nil), noResource},
		{ratelimit.NewPartitioned(missing, nil, nil), noLimiter + "; " + noResource},
	} {
		assert.EqualError(t, c.strategy.Validate(), "ratelimit: "+c.want)
		_, err := pipeline.New("orders", c.strategy)
		assert.ErrorIs(t, err, weir.ErrInvalidOptions)
	}
	assert.NoError(t, ratelimit.New(granting(), nil).Validate())
}
