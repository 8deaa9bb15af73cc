package weirgrpc

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/limiter/custom"
	"github.com/weir-go/weir/pipeline"
)

const (
	unaryMethod  = "/grpc.testing.TestService/UnaryCall"
	emptyMethod  = "/grpc.testing.TestService/EmptyCall"
	duplexMethod = "/grpc.testing.TestService/FullDuplexCall"
)

var errStore = errors.New("the store at 10.0.0.7 is down")

// always gives every call the same answer, and counts.
type always struct {
	grant      bool
	retryAfter time.Duration
	err        error

	mu                      sync.Mutex
	asked, released, undone int
}

func (a *always) TryAcquire(_ context.Context, n int) (limiter.Lease, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.asked++
	switch {
	case a.err != nil:
		return limiter.Lease{}, a.err
	case !a.grant:
		return custom.Rejected(a.retryAfter, ""), nil
	}
	count := func(n *int) func() {
		return func() {
			a.mu.Lock()
			defer a.mu.Unlock()
			*n++
		}
	}
	return custom.GrantedRefundable(n, count(&a.released), count(&a.undone)), nil
}

func (a *always) Acquire(ctx context.Context, n int) (limiter.Lease, error) {
	if ctx.Err() != nil {
		return limiter.Lease{}, ctx.Err()
	}
	return a.TryAcquire(ctx, n)
}

func (a *always) check(t *testing.T, asked, released, undone int) {
	t.Helper()
	a.mu.Lock()
	defer a.mu.Unlock()
	require.Equal(t, [3]int{asked, released, undone}, [3]int{a.asked, a.released, a.undone}, "asked, released, undone")
}

func yes() *always { return &always{grant: true} }
func no() *always  { return &always{retryAfter: 1500 * time.Microsecond} }

func slots(t testing.TB, permits, queue int) *limiter.Concurrency {
	l := weir.Must(limiter.NewConcurrency(limiter.ConcurrencyOptions{PermitLimit: permits, QueueLimit: queue}))
	t.Cleanup(func() { _ = l.Close() })
	return l
}

func tokens(t testing.TB, n int) *limiter.TokenBucket {
	l := weir.Must(limiter.NewTokenBucket(limiter.TokenBucketOptions{
		TokenLimit: n, TokensPerPeriod: n, ReplenishmentPeriod: time.Hour,
	}))
	t.Cleanup(func() { _ = l.Close() })
	return l
}

func keyedTokens(t testing.TB, n int) *limiter.PartitionedLimiter[string, string] {
	p := weir.Must(PerKey(limiter.FactoryFor[string](limiter.TokenBucketOptions{
		TokenLimit: n, TokensPerPeriod: n, ReplenishmentPeriod: time.Hour,
	}), &limiter.PartitionedOptions{MaxPartitions: 1000}))
	t.Cleanup(func() { _ = p.Close() })
	return p
}

func free(l limiter.StatisticsProvider) int { return int(l.Statistics().AvailablePermits) }

// eventRecorder records events.
type eventRecorder struct {
	mu     sync.Mutex
	events []pipeline.Event
}

func (r *eventRecorder) Hooks() pipeline.Hooks {
	return pipeline.Hooks{
		OnEvent: r.OnEvent,
	}
}

func (r *eventRecorder) OnEvent(_ context.Context, e pipeline.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, e)
}

func (r *eventRecorder) names() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var all []string
	for _, e := range r.events {
		all = append(all, e.Name+" "+e.Source.Strategy)
	}
	return all
}

// oneMethod returns Limits with one policy "p" for all methods.
func oneMethod(t testing.TB, p Policy, change ...func(*LimitsOptions)) *Limits {
	o := &LimitsOptions{Policies: map[string]Policy{"p": p}, Methods: map[string][]string{"*": {"p"}}}
	for _, c := range change {
		c(o)
	}
	return weir.Must(NewLimits(o))
}

// fakeStream is what a call without a connection knows of its transport.
type fakeStream struct {
	grpc.ServerStream
	ctx             context.Context
	method          string
	header, trailer metadata.MD
}

func (s *fakeStream) Context() context.Context { return s.ctx }
func (s *fakeStream) Method() string           { return s.method }
func (s *fakeStream) SetHeader(md metadata.MD) error {
	s.header = metadata.Join(s.header, md)
	return nil
}
func (s *fakeStream) SendHeader(md metadata.MD) error { return s.SetHeader(md) }
func (s *fakeStream) SetTrailer(md metadata.MD) error {
	s.trailer = metadata.Join(s.trailer, md)
	return nil
}
func (s *fakeStream) call(ctx context.Context) context.Context {
	return grpc.NewContextWithServerTransportStream(ctx, s)
}

// callUnary calls a method without a connection.
func callUnary(ctx context.Context, l *Limits, method string, h grpc.UnaryHandler) (response any, trailer metadata.MD, err error) {
	s := &fakeStream{method: method}
	response, err = l.UnaryInterceptor()(s.call(ctx), "message", &grpc.UnaryServerInfo{FullMethod: method}, h)
	return response, s.trailer, err
}

func answer(context.Context, any) (any, error) { return "answer", nil }
