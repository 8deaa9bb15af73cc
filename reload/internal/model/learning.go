package model

import (
	"reflect"

	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/strategies/ratelimit"
)

// A LearningKind is a kind of limiter that learns from the outcomes of executions.
type LearningKind struct {
	Make     func(options any) (limiter.Limiter, error)
	Describe func(options any) string // nil: by its options
}

// Learning are the kinds that learn. Without package reload/adaptive their functions are nil, and so are their options in [OwnKinds].
var Learning = map[string]LearningKind{"adaptive": {}, "throttler": {}}

// Adaptive makes a strategy that tells its limiter of the outcomes. It is nil without package reload/adaptive.
var Adaptive func(l limiter.Limiter, o ratelimit.Options, handle func(result any, err error) bool) pipeline.Strategy

// SetLearning sets a kind that learns. Only functions init call it.
func SetLearning(kind string, options reflect.Type, describe func(any) string, made func(any) (limiter.Limiter, error)) {
	Learning[kind], ownLimiters[kind] = LearningKind{made, describe}, options
}

// MissingImport says what the program lacks for a part of its file.
func MissingImport(part string) string {
	return part + ` needs a program with: import _ "github.com/weir-go/weir/reload/adaptive"`
}
