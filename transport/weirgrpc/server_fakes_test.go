package weirgrpc

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/weirtest"
)

const (
	unaryMethod  = "/grpc.testing.TestService/UnaryCall"
	emptyMethod  = "/grpc.testing.TestService/EmptyCall"
	duplexMethod = "/grpc.testing.TestService/FullDuplexCall"
)

var errStore = errors.New("the store at 10.0.0.7 is down")

// A scripted is a limiter that gives the answers of a script.
type scripted struct{ *weirtest.Limiter }

func follows(script ...weirtest.Answer) scripted { return scripted{weirtest.NewLimiter(script...)} }
func yes() scripted                              { return follows() }
func no() scripted                               { return follows(weirtest.Reject(1500*time.Microsecond, "")) }
func fails() scripted                            { return follows(weirtest.Fail(errStore)) }

func (s scripted) check(t *testing.T, asked, released, undone int) {
	t.Helper()
	got := [3]int{len(s.Calls()), s.Count(weirtest.Released), s.Count(weirtest.Refunded)}
	require.Equal(t, [3]int{asked, released, undone}, got, "asked, released, undone")
}

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

// names returns the names of events with the names of their policies.
func names(events []pipeline.Event) []string {
	var all []string
	for _, e := range events {
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
