package pipeline

import "context"

// An operationContext returns itself as the value of operationKey. So WithOperation takes one allocation, where
// [context.WithValue] would take a second one for the string, and Operation takes none.
type operationContext struct {
	context.Context
	key string
}

// operationKey is the key of the nearest *operationContext.
type operationKey struct{}

func (c *operationContext) Value(key any) any {
	if _, ok := key.(operationKey); ok {
		return c
	}
	return c.Context.Value(key)
}

// WithOperation returns a context whose executions have key as their operation in telemetry, such as
// "GET /orders/{id}". Keep the number of different keys small: metrics are kept for each.
func WithOperation(ctx context.Context, key string) context.Context {
	return &operationContext{Context: ctx, key: key}
}

// Operation returns the key of the nearest [WithOperation], or "" if there is none.
func Operation(ctx context.Context) string {
	if c, ok := ctx.Value(operationKey{}).(*operationContext); ok {
		return c.key
	}
	return ""
}
