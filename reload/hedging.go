package reload

import (
	"errors"
	"reflect"

	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/registry"
	"github.com/weir-go/weir/strategies/hedge"
)

type hedgingOptions struct {
	hedge.Options `yaml:",inline"`
	Handle        string `yaml:"handle,omitempty"`
	Budget        string `yaml:"budget,omitempty"`
}

// errDelayAtOnce is for files, in which a delay of 0 cannot be written.
var errDelayAtOnce = errors.New("hedge: invalid options: Delay must be left out with AtOnce")

// Validate says of a delay with at_once what a file can do about it.
func (o hedgingOptions) Validate() error {
	var err error
	if o.AtOnce && o.Delay != 0 {
		err, o.Delay = errDelayAtOnce, 0
	}
	return errors.Join(err, o.Options.Validate())
}

func decodeHedging(d *decoder, n *node, path string, s *strategyModel) {
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
