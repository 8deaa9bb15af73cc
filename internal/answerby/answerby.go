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
func With(ctx context.Context, t time.Time) context.Context { return &until{ctx, t} }

// Of returns the time by which limiters are to answer, if there is one.
func Of(ctx context.Context) (t time.Time, ok bool) {
	if u, ok := ctx.Value(key{}).(*until); ok {
		return u.t, true
	}
	return time.Time{}, false
}

type until struct {
	context.Context
	t time.Time
}

// Value implements [context.Context].
func (u *until) Value(k any) any {
	if k == (key{}) {
		return u
	}
	return u.Context.Value(k)
}
