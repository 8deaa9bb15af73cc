package reload

import (
	"reflect"

	"github.com/weir-go/weir/reload/internal/document"
	"github.com/weir-go/weir/reload/internal/model"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/backend"
)

// checkStored adds what a store says of the options of a limiter. Where they are not valid
// anyway each field is looked at by itself, to find all that is wrong at once.
func (d *decoder) checkStored(o interface{ Validate() error }, s *structure, k backend.Kind) {
	if o.Validate() == nil {
		if err := model.CheckStored(o, store.LimiterOptions{}); err != nil {
			d.invalid(err, s)
		}
		return
	}
	from := reflect.ValueOf(o)
	for i := range from.NumField() {
		one := reflect.New(from.Type()).Elem()
		one.Set(reflect.ValueOf(model.StoredExample(k)))
		one.Field(i).Set(from.Field(i))
		if one.Interface().(interface{ Validate() error }).Validate() != nil {
			continue
		}
		if err := model.CheckStored(one.Interface(), store.LimiterOptions{}); err != nil {
			d.invalid(err, s)
		}
	}
}

// noPartitions refuses what a partitioned limiter has no use for in a store.
func (d *decoder) noPartitions(l *model.Limiter, s *structure) {
	if l.Store == nil || s == nil {
		return
	}
	for _, field := range []string{"idle_timeout", "max_partitions"} {
		if at := s.values[field]; at != nil {
			d.Add(at, document.Child(s.path, field), "%s means nothing in a %s, where a key that is not in use costs nothing: leave it out", field, model.StoreField)
		}
	}
}
