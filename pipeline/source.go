package pipeline

import (
	"context"
	"strings"
)

// A Source says where something happened. Strategy is empty if it happened to the pipeline as a whole.
type Source struct{ Pipeline, Instance, Strategy string }

// String returns the parts that are not empty, separated by slashes: "orders/eu-1/RateLimiter", "orders/RateLimiter",
// "orders". It is "" for the zero Source.
func (s Source) String() string {
	if s.Instance == "" {
		return joinParts(s.Pipeline, s.Strategy)
	}
	return joinParts(joinParts(s.Pipeline, s.Instance), s.Strategy)
}

func joinParts(a, b string) string {
	switch {
	case a == "":
		return b
	case b == "":
		return a
	default:
		return a + "/" + b
	}
}

// prefix returns what errors begin with: "pipeline orders: ", or "pipeline: " if p has no name.
func (p *Pipeline) prefix() string { return strings.TrimSuffix("pipeline "+p.Name(), " ") + ": " }

// An operationContext is the value that it holds, so that it takes one allocation to make and none to read.
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
