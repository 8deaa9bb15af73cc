package rls

import (
	"context"
	"errors"
	"log/slog"
	"runtime/debug"
	"sync/atomic"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/transport/weirrls"
)

// A handler answers requests: each runs through a pipeline whose strategy is a [version], so that a request keeps the
// limiters of its version until it ends.
type handler struct {
	ratelimitv3.UnimplementedRateLimitServiceServer
	pipeline *pipeline.Pipeline
	logger   *slog.Logger
	running  atomic.Int64
}

// callKey is the key of the [*version] of a request in its context.
type callKey struct{}

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
	var v *version
	err = h.pipeline.Execute(context.WithValue(ctx, callKey{}, &v), func(context.Context) (err error) {
		answer, err = v.service.ShouldRateLimit(ctx, r)
		return err
	})
	if err != nil && v == nil { // the registry is closed
		err = status.Error(codes.Unavailable, err.Error())
	}
	return answer, err
}

// A version is the strategy with the service of one version of the file.
type version struct {
	service     *weirrls.Service
	description description
}

// A description is what is told of a version.
type description struct {
	Domains int `json:"domains"`
	Rules   int `json:"rules"`
}

var errNoCall = errors.New("rls: the pipeline is for the requests of the service")

// Execute gives the version to the request.
func (v *version) Execute(ctx context.Context, next pipeline.Next) (any, error) {
	of, ok := ctx.Value(callKey{}).(**version)
	if !ok {
		return nil, errNoCall
	}
	*of = v
	return next.Run(ctx)
}

// Describe returns how many rules there are, as a [pipeline.Description] has the options of a strategy.
func (v *version) Describe() (options, state any) { return v.description, nil }

// Name returns the name of the strategy.
func (v *version) Name() string { return "rules" }
