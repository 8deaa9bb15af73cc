package weirrls

import (
	"context"
	"sync"
	"sync/atomic"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/isnil"
	"github.com/weir-go/weir/internal/validate"
	"github.com/weir-go/weir/pipeline"
)

// ServiceOptions are the options of [NewService]. The zero value has the defaults.
type ServiceOptions struct {
	// Counters count the requests of each [Window], and of limits that requests bring with them. The default is
	// [NewCounters] without options. The service does not own them.
	Counters Counters
	// OverridesCountRejected counts the hits of rejected requests against limits that requests bring with them, as those of
	// a Window are. By default a rejected request costs nothing there, too: its hits are counted only until they are
	// taken back.
	OverridesCountRejected bool
	// CountersFailOpen admits requests while Counters cannot count. By default they are over the limit. For a Window,
	// [Limit.FailOpen] does the same.
	CountersFailOpen bool
	// Shadow makes the overall code OK for every request. The statuses of the descriptors and the headers of Headers say
	// what would have been. Events are those of [Limit.Shadow].
	Shadow bool
	// Quota makes a request over the limit only if all of its descriptors are, as if all limits had [Limit.Quota]. A
	// descriptor that no limit applies to is never over. One with [Limit.Unlimited] does not count.
	Quota bool
	// Headers adds RateLimit-Limit, RateLimit-Remaining and RateLimit-Reset of the tightest limit to every answer, as
	// envoyproxy/ratelimit does.
	Headers bool
	// Problem makes the body of a rejected request application/problem+json. By default it has no body.
	Problem bool
	// DynamicMetadata returns the domain, the descriptors and the Metadata of the limits that did not reject.
	DynamicMetadata bool
	// Listener receives the decisions, as the events and measurements of strategies/ratelimit. The name of the pipeline
	// is that of the domain, and the name of the strategy that of the limit; limits that requests bring with them are
	// called "override". If nil, nothing is reported. A panic in it is logged and changes no answer.
	Listener pipeline.Listener
}

// A Service is a RateLimitService. Make it with [NewService]. It is safe for concurrent use.
type Service struct {
	ratelimitv3.UnimplementedRateLimitServiceServer

	options ServiceOptions
	events  events
	memory  *memoryCounters // options.Counters, if they are in this process
	shared  bool            // options.Counters take a round trip

	setting sync.Mutex // held by SetRules
	current atomic.Pointer[rulesInForce]
}

// rulesInForce are the rules of a service, and the names of events that it has used for them.
type rulesInForce struct {
	rules *Rules
	names map[*rule]*nameSet
}

// NewService returns a service with some rules. If o is nil, the defaults apply. The error is a [weir.OptionsError].
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
	case isnil.Value(c):
		problems.Add("Counters", nil, "must not be a nil pointer")
	}
	if err := problems.Err("weirrls"); err != nil {
		return nil, err
	}
	s.memory, _ = s.options.Counters.(*memoryCounters)
	s.shared = s.memory == nil
	s.events = newEvents(s.options.Listener)
	s.SetRules(rules)
	return s, nil
}

// SetRules replaces the rules. Requests that have begun go on with the rules they began with, so close a limiter that is
// in the old rules only a little later. If rules is nil, the rules stay as they are.
func (s *Service) SetRules(rules *Rules) {
	if rules == nil {
		return
	}
	s.setting.Lock()
	defer s.setting.Unlock()
	next := &rulesInForce{rules: rules}
	if s.events.listener != nil {
		next.names = namesOf(rules, s.current.Load())
	}
	s.current.Store(next)
}

// ShouldRateLimit decides about a request of Envoy. It does not queue.
//
// If ctx has a deadline, as the timeout of Envoy's filter is one, limits of package store have three quarters of the time.
// A store that has not answered by then is treated as one that is away, for this request.
//
// The error is a gRPC status: InvalidArgument for a request without a domain or without descriptors, and that of ctx if
// it ended before there was a decision. What other limits had granted by then stays taken, as Envoy can have let the
// request pass after its timeout. Everything else is a decision and has no error.
func (s *Service) ShouldRateLimit(ctx context.Context, r *ratelimitv3.RateLimitRequest) (*ratelimitv3.RateLimitResponse, error) {
	switch {
	case r.GetDomain() == "":
		return nil, status.Error(codes.InvalidArgument, "weirrls: domain must be set")
	case len(r.GetDescriptors()) == 0:
		return nil, status.Error(codes.InvalidArgument, "weirrls: descriptors must have at least one descriptor")
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
