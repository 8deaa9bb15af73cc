package reload

import (
	"errors"
	"reflect"

	"github.com/weir-go/weir/internal/validate"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/registry"
	"github.com/weir-go/weir/reload/internal/document"
	"github.com/weir-go/weir/strategies/hedge"
)

type hedgingOptions struct {
	hedge.Options `yaml:",inline"`
	Handle        string `yaml:"handle,omitempty"`
	Budget        string `yaml:"budget,omitempty"`
}

// Validate says of a delay with at_once what a file can do about it, where a delay of 0 cannot be written.
func (o hedgingOptions) Validate() error {
	var p validate.Problems
	if o.AtOnce && o.Delay != 0 {
		p.Add("Delay", nil, "must be left out with {AtOnce}")
		o.Delay = 0
	}
	return errors.Join(p.Err("hedge"), o.Options.Validate())
}

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
	o.Budget = s.budget.keep(b)
	return hedge.New(&o), nil
}
