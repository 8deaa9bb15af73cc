package reload

import (
	"reflect"

	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/registry"
	"github.com/weir-go/weir/reload/internal/document"
	"github.com/weir-go/weir/reload/internal/model"
	"github.com/weir-go/weir/strategies/hedge"
)

func decodeHedging(d *decoder, n *document.Node, path string, s *model.Strategy) {
	s.Options = d.decodeOptions(n, reflect.TypeFor[model.HedgingOptions](), path, nil)
	d.budgetOf(n, path, s)
}

func buildHedging(b *registry.Builder, k *Kinds, s *model.Strategy) (pipeline.Strategy, error) {
	from := s.Options.(model.HedgingOptions)
	o := from.Options
	var err error
	if o.Handle, err = k.handle(from.Handle); err != nil {
		return nil, err
	}
	o.Budget = keepBudget(b, s.Budget)
	return hedge.New(&o), nil
}
