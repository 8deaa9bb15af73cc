package reload

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
		rateLimiterOptions{}, retryOptions{}, timeoutOptions{}, pipelineOptions{}, partitionedOptions{}, storeModel{},
		adaptive.LimiterOptions{}, adaptive.ThrottlerOptions{}, circuitBreakerOptions{}, fallbackOptions{}, hedgingOptions{}, budget.Options{},
		chaosFaultOptions{}, chaosLatencyOptions{}, chaosOutcomeOptions{}, chaosBehaviorOptions{},
		limiter.TokenBucketOptions{}, limiter.FixedWindowOptions{}, limiter.SlidingWindowOptions{}, limiter.ConcurrencyOptions{},
	} {
		typ := reflect.TypeOf(options)
		for _, f := range fieldsOf(typ) {
			if f.function {
				continue
			}
			assert.NotEmpty(t, f.doc, "%v: %s", typ, f.goName)
			if below := f.least - 1; f.bound && (below != 0 || f.zero == "") { // Validate takes a 0 for the default
				assert.Contains(t, complaint(typ, f, int64(below)), f.goName, "%v: %s", typ, f.goName)
				assert.NotContains(t, complaint(typ, f, int64(f.least)), f.goName+" is", "%v: %s", typ, f.goName)
			}
			if f.most != 0 {
				assert.Contains(t, complaint(typ, f, int64(f.most)+1), f.goName, "%v: %s", typ, f.goName)
				assert.NotContains(t, complaint(typ, f, int64(f.most)), f.goName+" is", "%v: %s", typ, f.goName)
			}
			for _, w := range f.words {
				assert.NotContains(t, complaint(typ, f, w.value), f.goName+" is "+strconv.FormatInt(w.value, 10), "%v: %s", typ, f.goName)
			}
			assert.NoError(t, decodable(f.typ))
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
func complaint(t reflect.Type, f field, value int64) string {
	v := reflect.New(t)
	word{value: value}.set(v.Elem().FieldByIndex(f.index))
	err := v.Interface().(interface{ Validate() error }).Validate()
	if err == nil {
		return ""
	}
	return err.Error()
}
