// Package learning is how the strategy of package ratelimit tells a limiter of package adaptive how executions end.
package learning

import (
	"context"

	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/strategies/internal/judge"
)

// A Limiter is a limiter that learns from executions. The strategy asks its Limiter for permits.
type Limiter struct {
	limiter.Limiter
	// Outcome returns how the result of an execution counts.
	Outcome func(ctx context.Context, result any, err error) judge.Outcome
	// Learn takes the outcome of an execution whose permits stay in use. Nothing else may use the lease meanwhile.
	Learn func(l limiter.Lease, o judge.Outcome)
	// Settle takes the outcome of an execution, unless Learn has taken it before, and releases the lease.
	Settle func(l limiter.Lease, o judge.Outcome)
}
