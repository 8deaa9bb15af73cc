package main

import (
	"context"
	"net"
	"sync/atomic"
	"testing"
	"time"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// A fakeService answers what a test says.
type fakeService struct {
	ratelimitv3.UnimplementedRateLimitServiceServer
	answer func(ctx context.Context, r *ratelimitv3.RateLimitRequest) (*ratelimitv3.RateLimitResponse, error)
}

func (s *fakeService) ShouldRateLimit(ctx context.Context, r *ratelimitv3.RateLimitRequest) (*ratelimitv3.RateLimitResponse, error) {
	return s.answer(ctx, r)
}

// serve serves on a free port by the server of grpc-go.
func serve(t *testing.T, f *fakeService) (*grpc.Server, string) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	s := grpc.NewServer()
	ratelimitv3.RegisterRateLimitServiceServer(s, f)
	go func() { _ = s.Serve(listener) }()
	t.Cleanup(s.Stop)
	return s, listener.Addr().String()
}

// The server of grpc-go understands all requests, also when the window of a connection has been used up many times.
func TestLoad_overGRPC(t *testing.T) {
	var requests, keys atomic.Int64
	_, target := serve(t, &fakeService{answer: func(ctx context.Context, r *ratelimitv3.RateLimitRequest) (*ratelimitv3.RateLimitResponse, error) {
		requests.Add(1)
		if r.Domain != "bench" || len(r.Descriptors) != 2 || r.Descriptors[0].Entries[0].Key != "remote_address" {
			return nil, status.Error(codes.InvalidArgument, "not the request that was expected")
		}
		if _, ok := ctx.Deadline(); !ok {
			return nil, status.Error(codes.InvalidArgument, "no deadline")
		}
		if r.Descriptors[0].Entries[0].Value == "10.0.0.7" {
			keys.Add(1)
		}
		answer := good()
		answer.RawBody = make([]byte, 1000)
		return answer, nil
	}})
	l := load{perSecond: 5000, connections: 2, keys: 10, duration: 200 * time.Millisecond, timeout: 10 * time.Second, seed: 1}
	r, err := l.run(t.Context(), target)
	require.NoError(t, err)
	assert.Equal(t, 1000, r.sent)
	assert.Zero(t, r.failed, r.problem)
	assert.EqualValues(t, 1000+2, requests.Load(), "each request is sent once, and each connection is tried")
	assert.InDelta(t, 100, keys.Load(), 60)
}

func TestConnection_failures(t *testing.T) {
	hang := make(chan struct{})
	defer close(hang)
	server, target := serve(t, &fakeService{answer: func(ctx context.Context, r *ratelimitv3.RateLimitRequest) (*ratelimitv3.RateLimitResponse, error) {
		switch r.Domain {
		case "bad":
			return nil, status.Error(codes.InvalidArgument, "not so")
		case "hangs":
			<-hang
		}
		return good(), nil
	}})
	c, err := connect(t.Context(), target, time.Minute, encoded(t, request(0)))
	require.NoError(t, err)
	defer c.close()
	ask := func(domain string) (answers chan error) {
		answers = make(chan error, 1)
		c.send(encoded(t, &ratelimitv3.RateLimitRequest{Domain: domain}), func(message []byte, err error) {
			if err == nil {
				err = check(message)
			}
			answers <- err
		})
		return answers
	}
	require.NoError(t, <-ask("good"))
	require.EqualError(t, <-ask("bad"), `gRPC status "3": not so`)
	require.NoError(t, <-ask("good"))
	var waiting []chan error
	for range maxStreams {
		waiting = append(waiting, ask("hangs"))
	}
	require.ErrorIs(t, <-ask("good"), errTooMany)
	go server.Stop()
	for _, w := range waiting {
		require.Error(t, <-w, "the connection ends")
	}
	require.Error(t, <-ask("good"), "no connection")

	_, err = connect(t.Context(), "127.0.0.1:1", time.Minute, nil)
	require.Error(t, err)
}
