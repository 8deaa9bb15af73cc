package weirhttp

import "github.com/weir-go/weir/transport/internal/admission"

// The events of this package, in addition to those of strategies/ratelimit.
const (
	// EventFailed: a limiter could not decide, and the request was rejected. Err has
	// the cause. Its severity is Error.
	EventFailed = admission.EventFailed
	// EventFailedOpen: a limiter could not decide, and the request was admitted
	// because of [Policy.FailOpen]. Its severity is Warning.
	EventFailedOpen = admission.EventFailedOpen
	// EventTimeout: a handler has not answered within [Policy.Timeout]. Err is the
	// [*TimeoutError]. Its severity is Error. It has the name of the event of
	// strategies/timeout.
	EventTimeout = admission.EventTimeout
)
