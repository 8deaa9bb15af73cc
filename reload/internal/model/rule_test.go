package model

import (
	"reflect"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/strategies/adaptive"
	"github.com/weir-go/weir/strategies/budget"
)

// TestRules holds that each field of weir's own options is described, and that what
// a rule says is what Validate says.
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
			if below := f.Least - 1; f.Bound && (below != 0 || f.Zero == "") { // Validate takes a 0 for the default
				assert.Contains(t, complaint(typ, f, int64(below)), f.GoName, "%v: %s", typ, f.GoName)
				assert.NotContains(t, complaint(typ, f, int64(f.Least)), f.GoName+" is", "%v: %s", typ, f.GoName)
			}
			if f.Most != 0 {
				assert.Contains(t, complaint(typ, f, int64(f.Most)+1), f.GoName, "%v: %s", typ, f.GoName)
				assert.NotContains(t, complaint(typ, f, int64(f.Most)), f.GoName+" is", "%v: %s", typ, f.GoName)
			}
			for _, w := range f.Words {
				assert.NotContains(t, complaint(typ, f, w.Value), f.GoName+" is "+strconv.FormatInt(w.Value, 10), "%v: %s", typ, f.GoName)
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

// complaint is what Validate says of a struct with one field set.
func complaint(t reflect.Type, f Field, value int64) string {
	v := reflect.New(t)
	Word{Value: value}.Set(v.Elem().FieldByIndex(f.Index))
	err := v.Interface().(interface{ Validate() error }).Validate()
	if err == nil {
		return ""
	}
	return err.Error()
}
