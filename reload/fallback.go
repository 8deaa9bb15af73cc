package reload

import (
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/registry"
	"github.com/weir-go/weir/strategies/fallback"
)

func buildFallback(_ *registry.Builder, k *Kinds, s *strategyModel) (pipeline.Strategy, error) {
	from := s.options.(fallbackOptions)
	action, err := registered[fallback.Action](k, fallbackAction, from.Action)
	if err != nil {
		return nil, err
	}
	o := from.Options
	if o.Handle, err = k.handle(from.Handle); err != nil {
		return nil, err
	}
	return fallback.New(action, &o), nil
}
