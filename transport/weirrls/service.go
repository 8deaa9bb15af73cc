package weirrls

import (
	"context"
	"sync/atomic"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/validate"
	"github.com/weir-go/weir/pipeline"
)

// A Service is a server of envoy.service.ratelimit.v3.RateLimitService. Make one with [NewService]. It is safe for
// concurrent use.
type Service struct {
	ratelimitv3.UnimplementedRateLimitServiceServer

	options ServiceOptions
	events  events
	rules   atomic.Pointer[Rules]
}

// NewService returns a Service with the given rules. If o is nil, the defaults apply. The error is a [weir.OptionsError]. The
// Service needs no Close, and does not close limiters and counters.
func NewService(rules *Rules, o *ServiceOptions) (*Service, error) {
	s := &Service{}
	if o != nil {
		s.options = *o
	}
	var problems validate.Problems
	if rules == nil {
		problems.Add("rules", nil, "must not be nil")
	}
	switch c := s.options.Counters; {
	case c == nil:
		s.options.Counters = weir.Must(NewCounters(nil))
	case c.hits == nil:
		problems.Add("Counters", nil, "must be made by NewCounters or NewSharedCounters")
	}
	if err := problems.Err("weirrls"); err != nil {
		return nil, err
	}
	s.events = events{pipeline.HooksOf(s.options.Listener)}
	s.SetRules(rules)
	return s, nil
}

// SetRules replaces the rules. Requests that have begun end under the old rules, so close a limiter of the old rules only
// when these requests have ended. If rules is nil, nothing changes.
func (s *Service) SetRules(rules *Rules) {
	if rules != nil {
		s.rules.Store(rules)
	}
}

// ShouldRateLimit decides about a request of Envoy. It does not queue.
//
// If ctx has a deadline, such as that of Envoy's filter, limiters of package store have three quarters of the time. For this
// request, a store that has not answered by then is treated as away.
//
// The error is a gRPC status: InvalidArgument for a request without a domain or without descriptors, and that of ctx if ctx
// ended before there was a decision. What other limits had granted by then stays taken, because Envoy can have let the
// request pass after its timeout. All other requests get a decision, without an error.
func (s *Service) ShouldRateLimit(ctx context.Context, r *ratelimitv3.RateLimitRequest) (*ratelimitv3.RateLimitResponse, error) {
	switch {
	case r.GetDomain() == "":
		return nil, status.Error(codes.InvalidArgument, "weirrls: domain must not be empty")
	case len(r.GetDescriptors()) == 0:
		return nil, status.Error(codes.InvalidArgument, "weirrls: descriptors must not be empty")
	}
	d := &decision{call: newCall(ctx, &s.options), request: r, domain: s.rules.Load().domains[r.GetDomain()]}
	listening, measuring := s.events.listens(ctx)
	d.measuring = measuring
	finished := false
	defer func() { d.end(finished) }()
	d.prepare()
	d.ask()
	if d.gone() {
		finished = true
		return nil, status.FromContextError(ctx.Err()).Err()
	}
	d.decide()
	d.settle()
	response := d.response()
	if listening {
		s.events.report(d)
	}
	finished = true
	return response, nil
}
