package telemetry

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/registry"
	"github.com/weir-go/weir/strategies/budget"
	"github.com/weir-go/weir/strategies/ratelimit"
	"github.com/weir-go/weir/strategies/retry"
	"github.com/weir-go/weir/strategies/timeout"
	"github.com/weir-go/weir/weirtest"
)

type named struct{ name string }

func (n named) Error() string     { return "named" }
func (n named) ErrorType() string { return n.name }

// unhashable cannot be the key of a map.
type unhashable []string

func (unhashable) Error() string { return "many" }

func TestErrorType(t *testing.T) {
	ended, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("going home"))
	tests := []struct {
		err  error
		want string
	}{
		{errors.New("boom"), "*errors.errorString"},
		{fmt.Errorf("calling: %w", errors.New("boom")), "*errors.errorString"},
		{context.Canceled, "context.Canceled"},
		{context.DeadlineExceeded, "context.DeadlineExceeded"},
		{pipeline.ContextError(ended), "context.Canceled"},
		{&url.Error{Op: "Get", Err: context.DeadlineExceeded}, "context.DeadlineExceeded"},
		{&net.OpError{Op: "read", Err: os.ErrDeadlineExceeded}, "*net.OpError"},
		{syscall.ECONNREFUSED, "syscall.Errno"},
		{fmt.Errorf("a: %w", fmt.Errorf("b: %w", &net.OpError{Err: syscall.ECONNREFUSED})), "*net.OpError"},
		{errors.Join(fmt.Errorf("a: %w", &net.DNSError{}), errors.New("boom")), "*net.DNSError"},
		{fmt.Errorf("%w: %w", pipeline.ErrClosed, &net.DNSError{}), "pipeline.ErrClosed"},
		{fmt.Errorf("it: %w", limiter.ErrClosed), "limiter.ErrClosed"},
		{pipeline.ErrAborted, "pipeline.ErrAborted"},
		{fmt.Errorf("orders: %w", limiter.ConcurrencyOptions{}.Validate()), "*weir.OptionsError"},
		{errors.Join(errors.New("boom"), fmt.Errorf("%w: 1", registry.ErrDrainTimeout)), "registry.ErrDrainTimeout"},
		{&ratelimit.RejectedError{}, "*ratelimit.RejectedError"},
		{&timeout.Error{Err: context.DeadlineExceeded}, "*timeout.Error"},
		{fmt.Errorf("a: %w", named{"quota_exceeded"}), "quota_exceeded"},
		{named{}, "telemetry.named"},
		{unhashable{"a"}, "telemetry.unhashable"},
		{fmt.Errorf("%w", error(nil)), "*fmt.wrapError"},
	}
	for _, tt := range tests {
		assert.Equal(t, tt.want, errorType(tt.err), "%#v", tt.err)
	}
}

// What a strategy adds to an error, such as that nothing was called, does not hide its type.
func TestErrorType_OfStrategies(t *testing.T) {
	lost := &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}
	nothing := weir.Must(budget.New(&budget.Options{Ratio: -1, MinPerSecond: -1}))
	for _, s := range []pipeline.Strategy{
		ratelimit.New(weirtest.NewLimiter(weirtest.Fail(lost)), nil),
		retry.New(&retry.Options{Budget: nothing}),
	} {
		p := weir.Must(pipeline.New("orders", s))
		err := p.Execute(t.Context(), func(context.Context) error { return lost })
		require.ErrorIs(t, err, lost)
		require.NotEqual(t, error(lost), err, "it is wrapped")
		assert.Equal(t, "*net.OpError", errorType(err), "%T", err)
	}
}

// The error type of an event of a registry is that of the cause, and not that of the wrapper.
func TestErrorType_OfARegistry(t *testing.T) {
	var got []string
	r := registry.New(&registry.Options{Listener: pipeline.ListenerFunc(func(_ context.Context, e pipeline.Event) {
		got = append(got, e.Name+" "+errorType(e.Err))
	})})
	t.Cleanup(func() { assert.NoError(t, r.Close(context.Background())) })
	limit := 1
	build := func(b *registry.Builder) error {
		b.Add(ratelimit.New(b.Concurrency("shared", limiter.ConcurrencyOptions{PermitLimit: limit}), nil))
		return nil
	}
	for _, name := range []string{"a", "b"} {
		_, err := r.GetOrDefine(name, build)
		assert.NoError(t, err)
	}
	limit = 2
	assert.Error(t, r.Reload(t.Context(), "a"))
	limit = 0
	assert.Error(t, r.Reload(t.Context(), "a"))
	for _, other := range []registry.BuildFunc{
		func(*registry.Builder) error { panic("boom") },
		func(b *registry.Builder) error { _, err := b.Pipeline("c"); return err },
		func(b *registry.Builder) error {
			itself, err := b.Pipeline("a")
			b.Add(pipeline.Embed(itself))
			return err
		},
	} {
		assert.Error(t, r.Apply(t.Context(), registry.Change{Define: map[string]registry.BuildFunc{"a": other}}))
	}
	assert.Equal(t, []string{
		"ReloadFailed registry.ErrLimiterConflict",
		"ReloadFailed *weir.OptionsError",
		"ReloadFailed panic",
		"ReloadFailed registry.ErrNotDefined",
		"ReloadFailed registry.ErrCycle",
	}, got)
}

func TestErrorType_Allocations(t *testing.T) {
	err := fmt.Errorf("a: %w", fmt.Errorf("b: %w", &net.OpError{Err: syscall.ECONNREFUSED}))
	assert.Zero(t, testing.AllocsPerRun(100, func() { errorType(err) }))
}

// Package telemetry does not import strategies/ratelimit, and repeats the name of its measurement.
func TestOnMeasurement_NameOfTheRateLimiter(t *testing.T) {
	assert.Equal(t, ratelimit.MeasureRequest, measureRequest)
}
