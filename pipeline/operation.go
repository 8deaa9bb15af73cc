package pipeline

import "context"

// operationContext is its own value: one allocation to make, none to read.
type operationContext struct {
	context.Context
	key string
}

// operationKey asks a context for the nearest *operationContext.
type operationKey struct{}

func (c *operationContext) Value(key any) any {
	if _, ok := key.(operationKey); ok {
		return c
	}
	return c.Context.Value(key)
}

// WithOperation returns a context whose executions show key as their operation
// in telemetry: what the program does, such as "GET /orders/{id}". Keep the
// number of different keys small, metrics are kept for each.
func WithOperation(ctx context.Context, key string) context.Context {
	return &operationContext{Context: ctx, key: key}
}

// Operation returns the key of the nearest [WithOperation], "" if there is none.
func Operation(ctx context.Context) string {
	if c, ok := ctx.Value(operationKey{}).(*operationContext); ok {
		return c.key
	}
	return ""
}
