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

	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/strategies/ratelimit"
	"github.com/weir-go/weir/strategies/timeout"
)

type named struct{ name string }

func (n named) Error() string     { return "named" }
func (n named) ErrorType() string { return n.name }

// unhashable is no key of a map.
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

func TestErrorTypeDoesNotAllocate(t *testing.T) {
	err := fmt.Errorf("a: %w", fmt.Errorf("b: %w", &net.OpError{Err: syscall.ECONNREFUSED}))
	assert.Zero(t, testing.AllocsPerRun(100, func() { errorType(err) }))
}

// What strategies/ratelimit measures is known here by name only.
func TestMeasurementsHaveTheNamesOfTheRateLimiter(t *testing.T) {
	assert.Equal(t, ratelimit.MeasureRequest, measureRequest)
	assert.Equal(t, ratelimit.MeasureLease, measureLease)
}
