package weirrls

import (
	"context"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/store"
)

// ServiceOptions are the options of [NewService]. The zero value has the defaults.
type ServiceOptions struct {
	// Counters count the requests of each [Window], and of limits that requests bring with them. The default is
	// [NewCounters] without options.
	Counters Counters
	// OverridesCountRejected counts the hits of rejected requests against limits that requests bring with them, as those of a
	// Window are. By default a rejected request costs nothing there, too.
	OverridesCountRejected bool
	// Shadow sets [Limit.Shadow] of all limits; Quota sets [Limit.Quota].
	Shadow, Quota bool
	// CountersFailOpen admits requests while Counters cannot count. By default they are rejected.
	CountersFailOpen bool
	// Headers adds ratelimit-limit, ratelimit-remaining and ratelimit-reset of the tightest limit to every answer.
	Headers bool
	// Problem makes the body of a rejected request application/problem+json. By default it has no body.
	Problem bool
	// DynamicMetadata returns the domain, the descriptors and the Metadata of the limits that did not reject.
	DynamicMetadata bool
	// Listener receives the decisions, as the events and measurements of strategies/ratelimit. The name of the pipeline
	// is that of the domain, and the name of the strategy that of the limit. If nil, nothing is reported.
	Listener pipeline.Listener
}

// Counters count the hits of windows that begin at whole units since 1970.
type Counters interface {
	// Count adds n to the counter of a key in the unit of that length that runs now, and returns the sum. n can be below
	// 0; the sum does not fall below 0.
	Count(ctx context.Context, unit Unit, key string, n int64) (sum int64, err error)
}

// CountersOptions are the options of [NewCounters].
type CountersOptions struct {
	// MaxKeys bounds the counters of each unit. The default is 100,000.
	MaxKeys int
}

// A Service is a RateLimitService. Make it with [NewService]. It is safe for concurrent use.
type Service struct {
	ratelimitv3.UnimplementedRateLimitServiceServer
	options ServiceOptions
}

// NewService returns a service with some rules. If o is nil, the defaults apply.
func NewService(rules *Rules, o *ServiceOptions) (*Service, error) { panic("not written yet") }

// SetRules replaces the rules. Requests that have begun go on with the rules they began with.
func (s *Service) SetRules(rules *Rules) { panic("not written yet") }

// ShouldRateLimit decides about a request of Envoy. It does not queue.
func (s *Service) ShouldRateLimit(ctx context.Context, r *ratelimitv3.RateLimitRequest) (*ratelimitv3.RateLimitResponse, error) {
	panic("not written yet")
}

// NewCounters returns counters in this process.
func NewCounters(o *CountersOptions) (Counters, error) { panic("not written yet") }


// NewSharedCounters returns counters that all programs with the same store share.
func NewSharedCounters(s *store.Store, o *CountersOptions) (Counters, error) { panic("not written yet") }
