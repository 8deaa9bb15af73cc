// Package answerby carries in a context until when a caller can use the answer of a store. A limiter of a store whose
// answer has not come by then answers by its outage policy. The end of a context, in contrast, is an error of the call, and
// nothing is decided.
package answerby

import (
	"context"
	"time"
)

type key struct{}

// With returns a context for calls of limiters that are to answer by t.
func With(ctx context.Context, t time.Time) context.Context { return context.WithValue(ctx, key{}, t) }

// Of returns the time by which limiters are to answer, if there is one.
func Of(ctx context.Context) (t time.Time, ok bool) {
	t, ok = ctx.Value(key{}).(time.Time)
	return t, ok
}
