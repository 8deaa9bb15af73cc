package main

import (
	"context"
	"net"
	"os"
	"os/exec"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
)

// An aloneService gives every request the same answer: what it takes is what gRPC and the machine take.
type aloneService struct {
	ratelimitv3.UnimplementedRateLimitServiceServer
	answer *ratelimitv3.RateLimitResponse
}

// ShouldRateLimit implements [ratelimitv3.RateLimitServiceServer].
func (s *aloneService) ShouldRateLimit(context.Context, *ratelimitv3.RateLimitRequest) (*ratelimitv3.RateLimitResponse, error) {
	return s.answer, nil
}

// serveAlone serves an aloneService until the context ends.
func serveAlone(ctx context.Context, address string) error {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	status := &ratelimitv3.RateLimitResponse_DescriptorStatus{
		Code: ratelimitv3.RateLimitResponse_OK, LimitRemaining: 1,
		CurrentLimit: &ratelimitv3.RateLimitResponse_RateLimit{RequestsPerUnit: 1, Unit: ratelimitv3.RateLimitResponse_RateLimit_HOUR},
	}
	s := grpc.NewServer()
	ratelimitv3.RegisterRateLimitServiceServer(s, &aloneService{answer: &ratelimitv3.RateLimitResponse{
		OverallCode: ratelimitv3.RateLimitResponse_OK,
		Statuses:    []*ratelimitv3.RateLimitResponse_DescriptorStatus{status, status},
	}})
	stop := context.AfterFunc(ctx, s.Stop)
	defer stop()
	return s.Serve(listener)
}

// aloneCommand starts this program as the server of an aloneService.
func aloneCommand(ctx context.Context, _, address string) (*exec.Cmd, error) {
	self, err := os.Executable()
	return exec.CommandContext(ctx, self, "-serve", address), err
}
