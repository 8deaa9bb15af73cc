package weirgrpc

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/strategies/circuitbreaker"
	"github.com/weir-go/weir/strategies/hedge"
	"github.com/weir-go/weir/strategies/ratelimit"
	"github.com/weir-go/weir/strategies/retry"
	"github.com/weir-go/weir/strategies/timeout"
	"github.com/weir-go/weir/weirtest"
)

// strategyFunc is a strategy.
type strategyFunc func(ctx context.Context, next pipeline.Next) (any, error)

func (f strategyFunc) Execute(ctx context.Context, next pipeline.Next) (any, error) {
	return f(ctx, next)
}

// ends returns a strategy that ends executions by itself.
func ends(value any, err error) pipeline.Strategy {
	return strategyFunc(func(context.Context, pipeline.Next) (any, error) { return value, err })
}

func throughPipeline(t testing.TB, strategies ...pipeline.Strategy) *Limits {
	return oneMethod(t, Policy{Limit: ByPipeline(weir.Must(pipeline.New("p", strategies...)))})
}

func TestByPipeline_HandlerIsTheOutcome(t *testing.T) {
	for _, c := range []struct {
		err  error
		want error // what strategies see
	}{
		{nil, nil},
		{status.Error(codes.NotFound, "no such order"), nil},
		{status.Error(codes.Internal, "broken"), &HandlerError{Code: codes.Internal}},
		{errors.New("plain"), &HandlerError{Code: codes.Unknown}},
		{context.DeadlineExceeded, &HandlerError{Code: codes.DeadlineExceeded}},
		{context.Canceled, nil},
	} {
		var seen error
		l := throughPipeline(t, strategyFunc(func(ctx context.Context, next pipeline.Next) (any, error) {
			value, err := next.Run(ctx)
			seen = err
			return value, err
		}))
		_, _, err := callUnary(t.Context(), l, unaryMethod, func(context.Context, any) (any, error) { return "answer", c.err })
		assert.Equal(t, c.err, err, "the client gets the error of the handler")
		failed, ok := errors.AsType[*HandlerError](seen)
		assert.Equal(t, c.want != nil, ok)
		if ok {
			assert.Equal(t, c.want.(*HandlerError).Code, failed.Code)
			assert.Equal(t, map[codes.Code]string{
				codes.Internal: "INTERNAL", codes.Unknown: "UNKNOWN", codes.DeadlineExceeded: "DEADLINE_EXCEEDED",
			}[failed.Code], failed.ErrorType(), "as a StatusError of a client has it")
		}
		_, err = runStream(t.Context(), l, 0, func(grpc.ServerStream) error { return c.err })
		assert.Equal(t, c.err, err)
	}
}

func TestByPipeline_Codes(t *testing.T) {
	own := status.Error(codes.FailedPrecondition, "not on Sundays")
	for name, c := range map[string]struct {
		s    pipeline.Strategy
		code codes.Code
	}{
		"rate limit":      {ratelimit.New(no(), nil), codes.ResourceExhausted},
		"concurrency":     {ratelimit.New(follows(weirtest.Reject(0, "")), nil), codes.Unavailable},
		"closed":          {ends(nil, limiter.ErrClosed), codes.Unavailable},
		"no answer":       {ends(nil, nil), codes.Unavailable},
		"own status":      {ends(nil, own), codes.FailedPrecondition},
		"OK as an error":  {ends(nil, okError{}), codes.Internal},
		"timeout":         {ends(nil, &timeout.Error{}), codes.DeadlineExceeded},
		"secret":          {ends(nil, errStore), codes.Internal},
		"rejected":        {ends(nil, pipeline.ErrRejected), codes.Unavailable},
		"strategy's last": {ends(nil, context.DeadlineExceeded), codes.DeadlineExceeded},
	} {
		before := yes()
		l := oneMethod(t, Policy{Limit: ByPipeline(weir.Must(pipeline.New("p", c.s)))}, func(o *LimitsOptions) { o.Global = Policy{Limit: Of(before)} })
		_, trailer, err := callUnary(t.Context(), l, unaryMethod, answer)
		assert.Equal(t, c.code, status.Code(err), name)
		assert.NotContains(t, status.Convert(err).Message(), "10.0.0.7", name)
		assert.Equal(t, name == "rate limit", len(trailer[pushbackTrailer]) == 1, name)
		rejected, ok := errors.AsType[*CallRejectedError](err)
		require.True(t, ok, name)
		assert.Equal(t, "p", rejected.Policy)
		before.check(t, 1, 0, 1)
		_, err = runStream(t.Context(), l, 0, func(grpc.ServerStream) error { return nil })
		assert.Equal(t, c.code, status.Code(err), name)
	}
}

type okError struct{}

func (okError) Error() string              { return "ok?" }
func (okError) GRPCStatus() *status.Status { return status.New(codes.OK, "") }

func TestByPipeline_AnswerOfAStrategy(t *testing.T) {
	response, _, err := callUnary(t.Context(), throughPipeline(t, ends("cached", nil)), unaryMethod, answer)
	require.NoError(t, err)
	assert.Equal(t, "cached", response)
	l := throughPipeline(t)
	response, _, err = callUnary(t.Context(), l, unaryMethod, answer)
	require.NoError(t, err)
	assert.Equal(t, "answer", response)
	response, _, err = callUnary(t.Context(), l, unaryMethod, func(context.Context, any) (any, error) { return nil, nil })
	require.NoError(t, err, "grpc-go decides about the nil of a handler")
	assert.Nil(t, response)
}

// A retry runs the handler of a unary call again, and that of a stream once.
func TestByPipeline_Retry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		later := yes()
		l := weir.Must(NewLimits(&LimitsOptions{
			Policies: map[string]Policy{
				"p":     Policy{Limit: ByPipeline(weir.Must(pipeline.New("p", retry.New(&retry.Options{MaxRetries: 2, Delay: time.Second}))))},
				"later": {Limit: Of(later)},
			},
			Methods: map[string][]string{"*": {"p", "later"}},
		}))
		runs := 0
		broken := status.Error(codes.Internal, "broken")
		response, _, err := callUnary(t.Context(), l, unaryMethod, func(context.Context, any) (any, error) {
			if runs++; runs < 3 {
				return nil, broken
			}
			return "answer", nil
		})
		require.NoError(t, err)
		assert.Equal(t, "answer", response)
		assert.Equal(t, 3, runs)
		later.check(t, 3, 3, 0)

		runs = 0
		began := time.Now()
		_, err = runStream(t.Context(), l, 0, func(grpc.ServerStream) error { runs++; return broken })
		assert.Equal(t, 1, runs)
		assert.Equal(t, broken, err, "the client gets the error of the handler")
		assert.Equal(t, began, time.Now(), "it does not wait for an attempt that cannot be made")
	})
}

// What an attempt has used is spent, also if a later attempt is rejected, and the permits of earlier policies are held as long
// as an attempt can follow.
func TestByPipeline_RejectionOfALaterAttempt(t *testing.T) {
	always := func(any, error) bool { return true }
	for name, c := range map[string]struct {
		script           []weirtest.Answer
		released, undone int
	}{
		"the handler has run":             {[]weirtest.Answer{weirtest.Grant(), weirtest.Reject(0, "")}, 1, 0},
		"the handler runs later":          {[]weirtest.Answer{weirtest.Reject(0, ""), weirtest.Grant()}, 1, 0},
		"the handler has run in between":  {[]weirtest.Answer{weirtest.Reject(0, ""), weirtest.Grant(), weirtest.Reject(0, "")}, 1, 0},
		"every attempt has been rejected": {[]weirtest.Answer{weirtest.Reject(0, "")}, 0, 1},
	} {
		t.Run(name, func(t *testing.T) {
			before := yes()
			l := weir.Must(NewLimits(&LimitsOptions{
				Policies: map[string]Policy{
					"before": {Limit: Of(before)},
					"p":      {Limit: ByPipeline(weir.Must(pipeline.New("p", retry.New(&retry.Options{MaxRetries: 3, Delay: -1, Handle: always}))))},
					"script": {Limit: Of(follows(c.script...))},
				},
				Methods: map[string][]string{"*": {"before", "p", "script"}},
			}))
			_, _, err := callUnary(t.Context(), l, unaryMethod, func(context.Context, any) (any, error) {
				before.check(t, 1, 0, 0)
				return nil, status.Error(codes.Internal, "broken")
			})
			assert.Error(t, err)
			before.check(t, 1, c.released, c.undone)
		})
	}
}

// A client has not gone because a strategy has cancelled the wait of its call in a queue.
func TestByPipeline_StrategyThatCancelsIsNoClientThatHasGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		busy := slots(t, 1, 1)
		require.True(t, weir.Must(busy.TryAcquire(t.Context(), 1)).Acquired())
		cancels := strategyFunc(func(ctx context.Context, next pipeline.Next) (any, error) {
			ctx, cancel := context.WithCancel(ctx)
			defer time.AfterFunc(time.Second, cancel).Stop()
			return next.Run(ctx)
		})
		l := weir.Must(NewLimits(&LimitsOptions{
			Policies: map[string]Policy{"p": {Limit: ByPipeline(weir.Must(pipeline.New("p", cancels)))}, "busy": {Limit: Of(busy)}},
			Methods:  map[string][]string{"*": {"p", "busy"}},
		}))
		_, _, err := callUnary(t.Context(), l, unaryMethod, answer)
		assert.Equal(t, codes.DeadlineExceeded, status.Code(err))
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		_, _, err = callUnary(gone, l, unaryMethod, answer)
		assert.Equal(t, codes.Canceled, status.Code(err))
	})
}

// An attempt that cannot be made says nothing about the handler.
func TestByPipeline_BreakerDoesNotCountAnAttemptThatIsNotMade(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		breaker := circuitbreaker.New(&circuitbreaker.Options{FailureRatio: -1, ConsecutiveFailures: 1})
		l := throughPipeline(t, hedge.New(&hedge.Options{Delay: time.Second}), breaker)
		response, _, err := callUnary(t.Context(), l, unaryMethod, func(context.Context, any) (any, error) {
			time.Sleep(time.Minute)
			return "slow, but well", nil
		})
		require.NoError(t, err)
		assert.Equal(t, "slow, but well", response)
		assert.Equal(t, circuitbreaker.Closed, breaker.State())
	})
}

// A rejection by a later policy is not a failure of the handler, and reaches the client as it is.
func TestByPipeline_RejectionInside(t *testing.T) {
	var seen error
	l := weir.Must(NewLimits(&LimitsOptions{
		Policies: map[string]Policy{
			"p": Policy{Limit: ByPipeline(weir.Must(pipeline.New("p", retry.New(nil), strategyFunc(func(ctx context.Context, next pipeline.Next) (any, error) {
				value, err := next.Run(ctx)
				seen = err
				return value, err
			}))))},
			"no": {Limit: Of(no())},
		},
		Methods: map[string][]string{"*": {"p", "no"}},
	}))
	_, trailer, err := callUnary(t.Context(), l, unaryMethod, answer)
	rejected, ok := errors.AsType[*CallRejectedError](err)
	require.True(t, ok)
	assert.Equal(t, "no", rejected.Policy)
	assert.Equal(t, rejected, seen)
	assert.True(t, rejected.NotCalled())
	assert.Equal(t, []string{"2"}, trailer[pushbackTrailer])
}

// A handler of a stream that does nothing but receive and send ends when a strategy has ended its context.
func TestByPipeline_TimeoutOfStream(t *testing.T) {
	for name, op := range map[string]func(s grpc.ServerStream) error{
		"receive": func(s grpc.ServerStream) error { return s.RecvMsg(nil) },
		"send":    func(s grpc.ServerStream) error { return s.SendMsg(nil) },
	} {
		synctest.Test(t, func(t *testing.T) {
			began := time.Now()
			_, err := runStream(t.Context(), throughPipeline(t, timeout.New(time.Second, nil)), 9, func(s grpc.ServerStream) error {
				for range 9 {
					if err := op(s); err != nil {
						return err
					}
					time.Sleep(400 * time.Millisecond)
				}
				return nil
			})
			assert.Equal(t, codes.DeadlineExceeded, status.Code(err), name)
			assert.Equal(t, 1200*time.Millisecond, time.Since(began), name)
			rejected, ok := errors.AsType[*CallRejectedError](err)
			require.True(t, ok, "%s: %v", name, err)
			_, ok = errors.AsType[*timeout.Error](rejected)
			assert.True(t, ok, name)
		})
	}
}

// A strategy that gives up a handler does not give up its permits: the call lasts until the handler has returned.
func TestByPipeline_AbandonedHandler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := throughPipeline(t, strategyFunc(func(ctx context.Context, next pipeline.Next) (any, error) {
			go func() { _, _ = next.Run(ctx) }()
			time.Sleep(time.Second)
			_, err := next.Run(ctx)
			assert.ErrorIs(t, err, errRunAgain)
			return nil, errStore
		}))
		began := time.Now()
		_, _, err := callUnary(t.Context(), l, unaryMethod, func(context.Context, any) (any, error) {
			time.Sleep(time.Minute)
			return "answer", nil
		})
		assert.Equal(t, codes.Internal, status.Code(err))
		assert.Equal(t, time.Minute, time.Since(began))
	})
}
