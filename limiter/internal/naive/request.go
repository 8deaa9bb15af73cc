package naive

import "time"

// An Outcome is the result of a request.
type Outcome uint8

// The outcomes.
const (
	Waiting Outcome = iota
	Granted
	Rejected
	OutOfRange
	Closed
	Cancelled
)

var outcomeNames = [...]string{"waits", "granted", "rejected", "ErrPermitCount", "ErrClosed", "context error"}

func (o Outcome) String() string { return outcomeNames[o] }

// An Answer is an Outcome with its details.
type Answer struct {
	Outcome Outcome
	Reason  string
	At      time.Duration // when it was given, since construction
	// Rejected: RetryAfter lies between these two; both 0: there is none.
	RetryMin, RetryMax time.Duration
	// RetryOptional: the request could be granted at once, so none is right too.
	RetryOptional bool
}

// A Request is one call of TryAcquire or Acquire.
type Request struct {
	Answer
	N    int
	From time.Duration // granted: the grid line that the permits are charged to
	done chan struct{} // closed when the outcome is no longer Waiting
}

// cost returns how much of the queue limit the request takes.
func (r *Request) cost() int { return max(r.N, 1) }

// settle gives the request its answer.
func (r *Request) settle(a Answer) {
	r.Answer = a
	if r.done != nil {
		close(r.done)
	}
}
