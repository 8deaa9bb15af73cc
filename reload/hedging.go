package reload

import (
	"reflect"

	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/registry"
	"github.com/weir-go/weir/reload/internal/document"
	"github.com/weir-go/weir/strategies/hedge"
)

func decodeHedging(d *decoder, n *document.Node, path string, s *strategyModel) {
	s.options = d.decodeOptions(n, reflect.TypeFor[hedgingOptions](), path, nil)
	d.budgetOf(n, path, s)
}

func buildHedging(b *registry.Builder, k *Kinds, s *strategyModel) (pipeline.Strategy, error) {
	from := s.options.(hedgingOptions)
	o := from.Options
	var err error
	if o.Handle, err = k.handle(from.Handle); err != nil {
		return nil, err
	}
	o.Budget = keepBudget(b, s.budget)
	return hedge.New(&o), nil
}
