package weirrls

import "github.com/weir-go/weir/pipeline"

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
