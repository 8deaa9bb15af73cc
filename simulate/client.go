package simulate

import (
	"time"

	"github.com/weir-go/weir/strategies/retry"
)

// Clients are what sends requests and reacts to the answers.
type Clients struct {
	// Timeout is how long a client waits for one execution; then it cancels it, which counts as a failure. 0: forever.
	Timeout time.Duration
	// OnRejection is what a client does when it is rejected, OnFailure what it does after another error.
	OnRejection, OnFailure Reaction
}

// A Reaction is what a client does after an error. The zero Reaction gives up.
type Reaction struct {
	// MaxRetries is how often a client tries again. 0 means that it gives up.
	MaxRetries int
	// Delay is how long it waits before it tries again. 0 means that it tries at once; after a thousand retries it waits a
	// millisecond.
	Delay time.Duration
	// Backoff is how the delays grow. The zero value is [retry.Constant].
	Backoff retry.Backoff
	// MaxDelay bounds the delay. 0 means that there is no limit.
	MaxDelay time.Duration
	// Jitter makes each delay a random part of itself.
	Jitter bool
	// RetryAfter makes the client wait as long as the rejection says, if it says so.
	RetryAfter bool
}
