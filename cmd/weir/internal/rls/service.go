package rls

import (
	"context"
	"log/slog"
	"runtime/debug"
	"sync/atomic"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weir-go/weir/pipeline"
)

// A handler answers requests: each runs through a pipeline whose strategy is a [version], so that a request keeps the
// limiters of its version until it ends.
type handler struct {
	ratelimitv3.UnimplementedRateLimitServiceServer
	pipeline *pipeline.Pipeline
	logger   *slog.Logger
	running  atomic.Int64
}

// ShouldRateLimit implements [ratelimitv3.RateLimitServiceServer]. A panic becomes an error of one request.
func (h *handler) ShouldRateLimit(ctx context.Context, r *ratelimitv3.RateLimitRequest) (answer *ratelimitv3.RateLimitResponse, err error) {
	if n := len(r.GetDescriptors()); n > maxDescriptors {
		return nil, status.Errorf(codes.InvalidArgument, "rls: a request must have at most %d descriptors, got %d", maxDescriptors, n)
	}
	h.running.Add(1)
	defer func() {
		h.running.Add(-1)
		if p := recover(); p != nil {
			h.logger.Error("a request panicked", "panic", p, "stack", string(debug.Stack()))
			answer, err = nil, status.Error(codes.Internal, "the request panicked")
		}
	}()
	c := &call{Context: ctx}
	err = h.pipeline.Execute(c, func(context.Context) (err error) {
		answer, err = c.version.service().ShouldRateLimit(ctx, r)
		return err
	})
	if err != nil && c.version == nil { // the registry is closed
		err = status.Error(codes.Unavailable, err.Error())
	}
	return answer, err
}

// A call is the context of a request. It gets the version of the rules for the request.
type call struct {
	context.Context
	version *version
}

type callKey struct{}

// Value returns c for the [version].
func (c *call) Value(key any) any {
	if key == (callKey{}) {
		return c
	}
	return c.Context.Value(key)
}
