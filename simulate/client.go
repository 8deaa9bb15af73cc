package simulate

import (
	"time"

	"github.com/weir-go/weir/strategies/retry"
)

// Clients are what sends requests and reacts to the answers.
type Clients struct {
	// Timeout is how long a client waits for one execution. Then the client cancels the execution, which counts as a failure.
	// 0 means that it waits forever.
	Timeout time.Duration
	// OnRejection is what a client does after a rejection by a limiter, a circuit breaker or another strategy.
	OnRejection Reaction
	// OnFailure is what a client does after any other error.
	OnFailure Reaction
}

// A Reaction is what a client does after an error. The zero Reaction gives up.
type Reaction struct {
	// MaxRetries is how often a client tries again. 0 means that it gives up.
	MaxRetries int
	// Delay is how long a client waits before it tries again. 0 means that it tries at once, but from the thousandth retry of
	// a request on it waits a millisecond.
	Delay time.Duration
	// Backoff is how the delays grow. The zero value is [retry.Constant].
	Backoff retry.Backoff
	// MaxDelay bounds the delay, but not the time that RetryAfter asks for. 0 means that there is no limit.
	MaxDelay time.Duration
	// Jitter draws each delay from 0 to what it would be without Jitter. If false, delays are not random.
	Jitter bool
	// RetryAfter makes a client wait at least as long as the error asks for, see
	// [github.com/weir-go/weir/pipeline.RetryAfter]. If false, clients ignore that.
	RetryAfter bool
}
