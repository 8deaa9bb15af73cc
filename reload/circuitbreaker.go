package reload

import (
	"fmt"
	"reflect"
	"strings"

	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/registry"
	"github.com/weir-go/weir/reload/internal/model"
	"github.com/weir-go/weir/strategies/circuitbreaker"
)

// A circuitKey identifies a circuit breaker: one with another key is made again.
type circuitKey struct {
	functions *Kinds // if it names functions: in other Kinds the same names can stand for other functions
	options   string
}

// buildCircuitBreaker returns the registry's circuit breaker of that name. It keeps its state as long as nothing
// about it changes. If something changes, it is made again and starts closed, because what it has counted was counted
// by other rules.
func buildCircuitBreaker(b *registry.Builder, k *Kinds, s *model.Strategy) (pipeline.Strategy, error) {
	from := s.Options.(model.CircuitBreakerOptions)
	o, err := circuitOptions(from, k)
	if err != nil {
		return nil, err
	}
	key := circuitKey{options: writtenOptions(from)}
	if from.Handle != "" || from.Control != "" {
		key.functions = k
	}
	made := registry.Keep(b, s.OwnName(b.Name, b.Instance), key, registry.Kept[*circuitbreaker.Strategy, circuitKey]{
		Kind: model.CircuitKind,
		Make: func(circuitKey) (*circuitbreaker.Strategy, error) {
			c := circuitbreaker.New(o)
			return c, c.Validate()
		},
	})
	if made == nil { // the registry reports the reason
		return nil, errNotMade
	}
	return made, nil
}

// circuitOptions replaces names of functions by the functions.
func circuitOptions(o model.CircuitBreakerOptions, k *Kinds) (*circuitbreaker.Options, error) {
	var err error
	if o.Options.Handle, err = k.handle(o.Handle); err != nil {
		return nil, err
	}
	if o.Control != "" {
		o.Options.Control, err = registered[*circuitbreaker.Control](k, model.CircuitControl, o.Control)
	}
	return &o.Options, err
}

// writtenOptions returns a text that has all that a file says of the options.
func writtenOptions(options any) string {
	v := reflect.ValueOf(options)
	var all []string
	for _, f := range model.FieldsOf(v.Type()) {
		if !f.Function {
			all = append(all, fmt.Sprintf("%s: %#v", f.Name, v.FieldByIndex(f.Index)))
		}
	}
	return strings.Join(all, ", ")
}
