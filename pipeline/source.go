package pipeline

import (
	"log/slog"
	"slices"
	"strings"
)

// A Source says where something happened. Strategy is empty if it happened to the pipeline as a whole.
type Source struct{ Pipeline, Instance, Strategy string }

// String returns the parts that are not empty, separated by slashes: "orders/eu-1/RateLimiter", "orders/RateLimiter",
// "orders". It is "" for the zero Source.
func (s Source) String() string {
	parts := []string{s.Pipeline, s.Instance, s.Strategy}
	return strings.Join(slices.DeleteFunc(parts, func(part string) bool { return part == "" }), "/")
}

// LogValue implements [slog.LogValuer]: a source is logged as its String.
func (s Source) LogValue() slog.Value { return slog.StringValue(s.String()) }
