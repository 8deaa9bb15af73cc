package dashboard

import "time"

// A CheckResult says what one limit would decide about a request now. It took no permit and counted nothing.
type CheckResult struct {
	Policy  string `json:"policy,omitempty"` // the name of the policy, or what else the limit is part of
	Limiter string `json:"limiter"`          // the name of the limiter
	// Key is the key of the request in a partitioned limiter. Without [Options.ShowKeys] the answer has its hash.
	Key string `json:"key,omitempty"`
	// Matched reports whether the limit applies to the request. If false, Reason says why not, and the fields below Reason
	// are zero.
	Matched bool `json:"matched"`
	// Reason is why the limit does not apply or, if it applies, why it would reject.
	Reason     string        `json:"reason,omitempty"`
	Granted    bool          `json:"granted"`               // the request would be let through now
	RetryAfter time.Duration `json:"retry_after,omitempty"` // in JSON in ns; 0: not rejected, or not known
	Remaining  *int64        `json:"remaining,omitempty"`   // the permits that would be left; nil: not known
	// Warning says what the answer cannot be relied on for, such as a store that was not available.
	Warning string `json:"warning,omitempty"`
}
