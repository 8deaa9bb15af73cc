package circuitbreaker

import (
	"time"

	"github.com/weir-go/weir/pipeline"
)

// NewOpenError makes an OpenError that knows when to retry.
func NewOpenError(state State, source pipeline.Source, cause error, after time.Duration) *OpenError {
	return &OpenError{State: state, Source: source, Err: cause, retryAfter: after}
}
