package weirgrpc

import (
	"context"
	"errors"
	"math"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/strategies/ratelimit"
	"github.com/weir-go/weir/strategies/timeout"
	"github.com/weir-go/weir/weirtest"
)

func TestLimits_Rejection(t *testing.T) {
	before, later := yes(), yes()
	l := weir.Must(NewLimits(&LimitsOptions{
		Global:   Policy{Limit: Of(before)},
		Policies: map[string]Policy{"quota": {Limit: Of(no())}, "later": {Limit: Of(later)}},
		Methods:  map[string][]string{"*": {"quota", "later"}},
	}))
	_, trailer, err := callUnary(t.Context(), l, unaryMethod, answer)
	rejected, ok := errors.AsType[*CallRejectedError](err)
	require.True(t, ok)
	assert.Equal(t, "quota", rejected.Policy)
	require.EqualError(t, err, "weirgrpc: policy quota: rejected")
	assert.Equal(t, codes.ResourceExhausted, rejected.Code)
	require.ErrorIs(t, err, pipeline.ErrRejected)
	after, _ := pipeline.RetryAfter(err)
	assert.Equal(t, 1500*time.Microsecond, after)
	assert.Equal(t, metadata.Pairs("grpc-retry-pushback-ms", "2"), trailer, "rounded up")

	s := status.Convert(err)
	assert.Equal(t, codes.ResourceExhausted, s.Code())
	require.Len(t, s.Details(), 1)
	assert.Equal(t, 1500*time.Microsecond, s.Details()[0].(*errdetails.RetryInfo).GetRetryDelay().AsDuration())
	assert.NotContains(t, s.Message(), "quota\"")
	before.check(t, 1, 0, 1)
	later.check(t, 0, 0, 0)
}

// Each cause of a rejection has its code; what the server knows about it is not for the client.
func TestLimits_Codes(t *testing.T) {
	full := slots(t, 1, 0)
	weir.Must(full.TryAcquire(t.Context(), 1))
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	late, cancelLate := context.WithDeadline(t.Context(), time.Now().Add(-time.Second))
	defer cancelLate()
	cost := func(n int) func(*Request) int { return func(*Request) int { return n } }
	for name, c := range map[string]struct {
		ctx     context.Context
		p       Policy
		code    codes.Code
		trailer string
	}{
		"quota":          {t.Context(), Policy{Limit: Of(no())}, codes.ResourceExhausted, "2"},
		"capacity":       {t.Context(), Policy{Limit: Of(full)}, codes.Unavailable, ""},
		"too large":      {t.Context(), Policy{Limit: Of(tokens(t, 1)), Cost: cost(2)}, codes.ResourceExhausted, "-1"},
		"own code":       {t.Context(), Policy{Limit: Of(no()), Code: codes.FailedPrecondition}, codes.FailedPrecondition, "2"},
		"negative":       {t.Context(), Policy{Limit: Of(tokens(t, 1)), Cost: cost(-1)}, codes.Internal, ""},
		"failure, code":  {t.Context(), Policy{Limit: Of(fails()), Code: codes.Aborted}, codes.Unavailable, ""},
		"client gone":    {gone, Policy{Limit: Of(tokens(t, 1))}, codes.Canceled, ""},
		"deadline":       {late, Policy{Limit: Of(tokens(t, 1))}, codes.DeadlineExceeded, ""},
		"huge wait":      {t.Context(), Policy{Limit: Of(follows(weirtest.Reject(math.MaxInt64, "")))}, codes.ResourceExhausted, "2147483647"},
		"no wait at all": {t.Context(), Policy{Limit: Of(full), MaxWait: -1}, codes.Unavailable, ""},
	} {
		_, trailer, err := callUnary(c.ctx, oneMethod(t, c.p), unaryMethod, answer)
		require.Error(t, err, name)
		assert.Equal(t, c.code, status.Code(err), name)
		assert.Equal(t, c.trailer, strings.Join(trailer[pushbackTrailer], ","), name)
		assert.NotContains(t, status.Convert(err).Message(), "10.0.0.7", name)
		assert.Equal(t, c.trailer != "" && c.trailer != "-1", len(status.Convert(err).Details()) == 1, name)
	}
	_, _, err := callUnary(t.Context(), oneMethod(t, Policy{Limit: Of(fails())}), unaryMethod, answer)
	require.ErrorIs(t, err, errStore, "the program can find the cause")
	events := new(weirtest.Recorder)
	for _, p := range []Policy{{Limit: Of(no()), Shadow: true}, {Limit: Of(fails()), FailOpen: true}} {
		_, _, err = callUnary(t.Context(), oneMethod(t, p, func(o *LimitsOptions) { o.Listener = events }), unaryMethod, answer)
		require.NoError(t, err)
	}
	assert.Equal(t, []string{ratelimit.EventShadowRejected + " p", EventFailedOpen + " p"}, names(events.Events()))
	_, _, err = callUnary(t.Context(), oneMethod(t, Policy{Limit: Of(no())}, func(o *LimitsOptions) { o.Shadow = true }), unaryMethod, answer)
	require.NoError(t, err)
}

func TestLimits_Admitted(t *testing.T) {
	global, own := yes(), yes()
	l := weir.Must(NewLimits(&LimitsOptions{
		Global:   Policy{Limit: Of(global)},
		Policies: map[string]Policy{"own": {Limit: Of(own)}},
		Methods:  map[string][]string{unaryMethod: {"own"}, "/grpc.testing.TestService/*": {}},
		Exempt:   []string{"/grpc.health.v1.Health/*"},
	}))
	response, trailer, err := callUnary(t.Context(), l, unaryMethod, func(ctx context.Context, message any) (any, error) {
		global.check(t, 1, 0, 0)
		own.check(t, 1, 0, 0)
		assert.Equal(t, "message", message)
		assert.Equal(t, unaryMethod, RequestFrom(ctx).Method)
		var names []string
		for name := range Leases(ctx) {
			names = append(names, name)
		}
		assert.Equal(t, []string{"own", "global"}, names)
		return "answer", nil
	})
	require.NoError(t, err)
	assert.Equal(t, "answer", response)
	assert.Empty(t, trailer)
	own.check(t, 1, 1, 0)

	for _, method := range []string{emptyMethod, "/other.Service/Method", "nothing", "", "/", "/grpc.health.v1.Health/Check"} {
		_, _, err = callUnary(t.Context(), l, method, answer)
		require.NoError(t, err)
	}
	global.check(t, 6, 6, 0) // not for the exempt method
	own.check(t, 1, 1, 0)
}

// Two interceptors of the same Limits ask the global limiter once.
func TestLimits_GlobalOnce(t *testing.T) {
	global := yes()
	l := weir.Must(NewLimits(&LimitsOptions{Global: Policy{Limit: Of(global)}}))
	_, _, err := callUnary(t.Context(), l, unaryMethod, func(ctx context.Context, message any) (any, error) {
		return l.UnaryInterceptor()(ctx, message, &grpc.UnaryServerInfo{FullMethod: unaryMethod}, answer)
	})
	require.NoError(t, err)
	global.check(t, 1, 1, 0)

	inner := oneMethod(t, Policy{Limit: Of(no())})
	_, trailer, err := callUnary(t.Context(), l, unaryMethod, func(ctx context.Context, message any) (any, error) {
		return inner.UnaryInterceptor()(ctx, message, &grpc.UnaryServerInfo{FullMethod: unaryMethod}, answer)
	})
	require.Error(t, err)
	assert.Len(t, trailer[pushbackTrailer], 1, "grpc-go does not retry if there are two")
}

// A callback has a value of each kind of function that a program can hand to this package. It runs end when it is called.
type callback struct{ end func() }

func (c callback) key(*Request) string                      { c.end(); return "" }
func (c callback) cost(*Request) int                        { c.end(); return 1 }
func (c callback) failed(codes.Code) bool                   { c.end(); return true }
func (c callback) handle(context.Context, any) (any, error) { c.end(); return nil, errStore }
func (c callback) Hooks() pipeline.Hooks {
	return pipeline.Hooks{
		OnEvent: c.OnEvent,
	}
}

func (c callback) OnEvent(context.Context, pipeline.Event) { c.end() }

func (c callback) new(string) (limiter.Limiter, error) { c.end(); return nil, nil }

func (c callback) TryAcquire(context.Context, int) (limiter.Lease, error) {
	return c.Acquire(context.Background(), 1)
}
func (c callback) Acquire(context.Context, int) (limiter.Lease, error) {
	c.end()
	return limiter.Lease{}, nil
}

// partitionedCallback is a partitioned limiter that is a callback.
type partitionedCallback[T any] struct{ callback }

func (c partitionedCallback[T]) TryAcquire(context.Context, T, int) (limiter.Lease, error) {
	return c.callback.Acquire(context.Background(), 1)
}

func (c partitionedCallback[T]) Acquire(context.Context, T, int) (limiter.Lease, error) {
	return c.callback.Acquire(context.Background(), 1)
}

// A panic or Goexit in a callback or a handler goes on to the caller, leaves no permits behind, and the next call can be
// made. tools/hooktest names this test for the callbacks of this package.
func TestLimits_PanicAndGoexit(t *testing.T) {
	fail := true
	for how, end := range map[string]func(){
		"panic":  func() { panic("callback") },
		"goexit": runtime.Goexit,
	} {
		c := callback{func() {
			if fail {
				end()
			}
		}}
		handlers := Policy{Limit: ByPipeline(weir.Must(pipeline.New("p")))}
		factory := weir.Must(PerKey(c.new, nil))
		for where, p := range map[string]Policy{
			"Policy.Key":             {Limit: ByKey(keyedTokens(t, 1), c.key)},
			"Subject":                {Limit: ByKey(keyedTokens(t, 1), Subject(c.key))},
			"Composite":              {Limit: ByKey(keyedTokens(t, 1), Composite(Method(), c.key))},
			"Policy.Cost":            {Limit: Of(yes()), Cost: c.cost},
			"Policy.Limiter":         {Limit: Of(c)},
			"Policy.Partitioned":     {Limit: ByKey(partitionedCallback[string]{c}, nil)},
			"Policy.Requests":        {Limit: ByRequest(partitionedCallback[*Request]{c})},
			"PerKey":                 {Limit: ByKey(factory, nil)},
			"LimitsOptions.Failed":   handlers,
			"LimitsOptions.Listener": {Limit: Of(no())},
			"handler":                {Limit: Of(yes())},
			"handler in a pipeline":  handlers,
		} {
			before, h := slots(t, 1, 0), grpc.UnaryHandler(answer)
			l := oneMethod(t, p, func(o *LimitsOptions) {
				o.Global = Policy{Limit: Of(before)}
				switch where {
				case "LimitsOptions.Failed":
					o.Failed = c.failed
					h = func(context.Context, any) (any, error) { return nil, errStore }
				case "LimitsOptions.Listener":
					o.Listener = c
				case "handler", "handler in a pipeline":
					h = c.handle
				}
			})
			returned := false
			done := make(chan any)
			go func() {
				defer func() { done <- recover() }()
				_, _, _ = callUnary(context.Background(), l, unaryMethod, h)
				returned = true
			}()
			recovered := <-done
			assert.False(t, returned, "%s in %s", how, where)
			assert.Equal(t, how == "panic", recovered != nil, "%s in %s", how, where)
			assert.Equal(t, 1, free(before), "%s in %s", how, where)

			fail = false
			_, _, _ = callUnary(t.Context(), l, unaryMethod, h)
			assert.Equal(t, 1, free(before), "%s in %s", how, where)
			fail = true
		}
		require.NoError(t, factory.Close())
	}
}

func TestLimits_Timeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		events, l := new(weirtest.Recorder), slots(t, 1, 0)
		limits := oneMethod(t, Policy{Limit: Of(l), Timeout: time.Second}, func(o *LimitsOptions) {
			o.Listener, o.Global = events, Policy{Limit: Of(slots(t, 1, 0)), Timeout: 1, Shadow: true} // is not in force
		})
		for name, c := range map[string]struct {
			err  func(ctx context.Context) error
			code codes.Code
		}{
			"context": {func(ctx context.Context) error { return ctx.Err() }, codes.DeadlineExceeded},
			"status":  {func(context.Context) error { return status.Error(codes.Canceled, "") }, codes.DeadlineExceeded},
			"other":   {func(context.Context) error { return status.Error(codes.NotFound, "") }, codes.NotFound},
			"success": {func(context.Context) error { return nil }, codes.OK},
		} {
			_, _, err := callUnary(t.Context(), limits, unaryMethod, func(ctx context.Context, _ any) (any, error) {
				<-ctx.Done()
				return "answer", c.err(ctx)
			})
			assert.Equal(t, c.code, status.Code(err), name)
			assert.Equal(t, 1, free(l), name)
		}
		assert.Equal(t, []string{timeout.EventTimeout + " p", timeout.EventTimeout + " p"}, names(events.Events()))
	})
}

func TestNewLimits_Problems(t *testing.T) {
	var nilBucket *limiter.TokenBucket
	_, err := NewLimits(&LimitsOptions{
		Global: Policy{Metered: true},
		Policies: map[string]Policy{
			"":       {Limit: Of(yes())},
			"global": {Limit: Of(yes())},
			"a":      {Limit: Of(nilBucket)},
			"b":      {Limit: Of(yes()), Timeout: -1, Code: 17, Quota: -1, Window: -1, Streams: 9, Headers: 9},
			"c":      {Limit: ByPipeline(weir.Must(pipeline.New("c"))), MaxWait: 1, Streams: StreamSent},
		},
		Methods: map[string][]string{"/a/b": {"c", "c", "none"}, "a/b": nil, "/a/*/b": nil, "/a/b*": nil, "/*": nil, "": nil},
		Exempt:  []string{"/a/b", "x"},
		Headers: 3,
	})
	require.ErrorIs(t, err, weir.ErrInvalidOptions)
	options, ok := errors.AsType[*weir.OptionsError](err)
	require.True(t, ok)
	require.ErrorContains(t, err, `Methods[/a/b][2] must be the name of a policy ("", "a", "b", "c", "global"), got "none"`)
	require.ErrorContains(t, err, "Headers must be NoHeaders, Legacy or Draft11, got Headers(3)")
	require.ErrorContains(t, err, "Policies[b].Streams must be StreamHold, StreamAdmit, StreamReceived, StreamSent or StreamMessages, got StreamMode(9)")
	var paths []string
	for _, f := range options.Fields {
		paths = append(paths, f.Path)
	}
	assert.Equal(t, []string{
		"Headers", "Global.Limit", "Policies[]", "Policies[a].Limit", "Policies[b].Headers", "Policies[b].Timeout", "Policies[b].Quota", "Policies[b].Window",
		"Policies[b].Streams", "Policies[b].Code",
		"Policies[c].MaxWait", "Policies[c].Streams", "Policies[global]",
		"Methods[]", "Methods[/*]", "Methods[/a/*/b]", "Methods[/a/b][1]", "Methods[/a/b][2]", "Methods[/a/b*]", "Methods[a/b]", "Exempt[0]", "Exempt[1]",
	}, paths)
	_, err = NewLimits(nil)
	require.NoError(t, err)
}

func TestStreamMode_Text(t *testing.T) {
	for m := StreamHold; m <= StreamMessages; m++ {
		var back StreamMode
		require.NoError(t, back.UnmarshalText(weir.Must(m.MarshalText())))
		assert.Equal(t, m, back)
	}
	require.Error(t, new(StreamMode).UnmarshalText([]byte("all")))
	assert.Equal(t, "received", StreamReceived.String())
	assert.Equal(t, "draft-11", Draft11.String())
}
