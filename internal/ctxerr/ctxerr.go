// Package ctxerr has the error of a context that is done.
package ctxerr

import (
	"context"
	"errors"
	"fmt"
)

// Of returns nil if ctx is not done, else an error that matches both ctx.Err() and [context.Cause](ctx).
func Of(ctx context.Context) error {
	err := ctx.Err()
	if err == nil {
		return nil
	}
	cause := context.Cause(ctx)
	switch {
	case cause == nil || errors.Is(err, cause):
		return err
	case errors.Is(cause, err):
		return cause
	default:
		return fmt.Errorf("%w: %w", err, cause)
	}
}
