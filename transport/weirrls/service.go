package weirrls

import (
	"context"
	"sync"
	"sync/atomic"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/validate"
	"github.com/weir-go/weir/pipeline"
)

// ServiceOptions are the options of [NewService]. The zero value has the defaults.
type ServiceOptions struct {
	// Counters count the hits of each [Window], and of limits that requests bring with them. The default is [NewCounters]
	// without options.
	Counters *Counters
	// OverridesCountRejected makes limits that requests bring with them count the hits of rejected requests, as a Window
	// does. By default a rejected request costs nothing there: its hits are taken back at once.
	OverridesCountRejected bool
	// CountersFailOpen admits requests while Counters cannot count, because their store is away. By default these requests
	// are over the limit. For a Window, [Limit.FailOpen] does the same.
	CountersFailOpen bool
	// Shadow makes the overall code OK for every request. The statuses of the descriptors and the headers of Headers are
	// those of the decision. Events are those of [Limit.Shadow].
	Shadow bool
	// Quota puts a request over the limit only if all of its descriptors are, as if all limits had [Limit.Quota]. A
	// descriptor without a limit is never over the limit. One with [Limit.Unlimited] is ignored.
	Quota bool
	// Headers adds RateLimit-Limit, RateLimit-Remaining and RateLimit-Reset of the tightest limit to every answer, as
	// envoyproxy/ratelimit does.
	Headers bool
	// NoRetryAfter leaves out the header Retry-After, which rejections have by default. envoyproxy/ratelimit adds none.
	NoRetryAfter bool
	// Problem adds a body of type application/problem+json to rejections. By default they have no body.
	Problem bool
	// DynamicMetadata returns the domain, the descriptors and the Metadata of the limits that did not reject.
	DynamicMetadata bool
	// Listener receives the decisions, as the events and measurements of strategies/ratelimit, and [EventFailed] and
	// [EventFailedOpen]. The name of the pipeline is the domain, and the name of the strategy is that of the limit, or
	// "override" for limits that requests bring with them. If nil, nothing is reported. A panic of the Listener is logged
	// and changes no answer.
	Listener pipeline.Listener
}

// A Service is a server of envoy.service.ratelimit.v3.RateLimitService. Make one with [NewService]. It is safe for
// concurrent use.
type Service struct {
	ratelimitv3.UnimplementedRateLimitServiceServer

	options ServiceOptions
	events  events

	setting sync.Mutex // held by SetRules
	current atomic.Pointer[rulesInForce]
}

// rulesInForce are the rules of a service, and the names of events that it has used for them.
type rulesInForce struct {
	rules *Rules
	names map[*rule]*nameSet
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
	s.events = newEvents(s.options.Listener)
	s.SetRules(rules)
	return s, nil
}

// SetRules replaces the rules. Requests that have begun end under the old rules, so close a limiter of the old rules only
// when these requests have ended. If rules is nil, nothing changes.
func (s *Service) SetRules(rules *Rules) {
	if rules == nil {
		return
	}
	s.setting.Lock()
	defer s.setting.Unlock()
	next := &rulesInForce{rules: rules}
	if !s.events.none() {
		next.names = namesOf(rules, s.current.Load())
	}
	s.current.Store(next)
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
	d := newDecision(ctx, s, r)
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
	d.report()
	finished = true
	return response, nil
}
