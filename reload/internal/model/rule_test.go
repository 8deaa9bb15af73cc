package model

import (
	"errors"
	"reflect"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/strategies/adaptive"
	"github.com/weir-go/weir/strategies/budget"
)

// TestRules holds that each field of weir's own options is described, and that the rules agree with the Validate methods.
func TestRules(t *testing.T) {
	for _, options := range []any{
		RateLimiterOptions{}, RetryOptions{}, TimeoutOptions{}, PipelineOptions{}, PartitionedOptions{}, Store{},
		adaptive.LimiterOptions{}, adaptive.ThrottlerOptions{}, CircuitBreakerOptions{}, FallbackOptions{}, HedgingOptions{}, budget.Options{},
		ChaosFaultOptions{}, ChaosLatencyOptions{}, ChaosOutcomeOptions{}, ChaosBehaviorOptions{},
		limiter.TokenBucketOptions{}, limiter.FixedWindowOptions{}, limiter.SlidingWindowOptions{}, limiter.ConcurrencyOptions{},
	} {
		typ := reflect.TypeOf(options)
		for _, f := range FieldsOf(typ) {
			if f.Function {
				continue
			}
			assert.NotEmpty(t, f.Doc, "%v: %s", typ, f.GoName)
			if below := f.Least - 1; f.HasLeast && (below != 0 || f.Default == "") { // Validate takes a 0 for the default
				assert.Contains(t, refusedFields(typ, f, int64(below)), f.GoName, "%v: %s", typ, f.GoName)
				assert.NotContains(t, refusedFields(typ, f, int64(f.Least)), f.GoName, "%v: %s", typ, f.GoName)
			}
			if f.Most != 0 {
				assert.Contains(t, refusedFields(typ, f, int64(f.Most)+1), f.GoName, "%v: %s", typ, f.GoName)
				assert.NotContains(t, refusedFields(typ, f, int64(f.Most)), f.GoName, "%v: %s", typ, f.GoName)
			}
			if f.Below != 0 {
				assert.Contains(t, refusedFields(typ, f, int64(f.Below)), f.GoName, "%v: %s", typ, f.GoName)
			}
			for _, w := range f.Words {
				assert.NotContains(t, refusedFields(typ, f, w.Value), f.GoName, "%v: %s", typ, f.GoName)
			}
			assert.NoError(t, Decodable(f.Type))
		}
	}
	for typ, fields := range rules {
		for name := range fields {
			_, ok := typ.FieldByName(name)
			assert.True(t, ok, "%v has no %s", typ, name)
		}
	}
}

// refusedFields returns the names of the fields that Validate refuses if f has that value and all others are 0.
func refusedFields(t reflect.Type, f Field, value int64) []string {
	v := reflect.New(t)
	if control := v.Elem().FieldByName("Control"); control.IsValid() && control.Kind() == reflect.String {
		control.SetString("ops") // without a ratio, something else must open the circuit
	}
	Word{Value: value}.Set(v.Elem().FieldByIndex(f.Index))
	err, _ := errors.AsType[*weir.OptionsError](validateOptions(v.Interface()))
	if err == nil {
		return nil
	}
	names := make([]string, len(err.Fields))
	for i, f := range err.Fields {
		names[i] = f.Path
	}
	return names
}

func validateOptions(options any) error {
	if s, ok := options.(*Store); ok {
		return s.Check("")
	}
	return options.(interface{ Validate() error }).Validate()
}
