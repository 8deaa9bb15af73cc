package reload

import (
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/registry"
	"github.com/weir-go/weir/reload/internal/model"
	"github.com/weir-go/weir/strategies/fallback"
)

func buildFallback(_ *registry.Builder, k *Kinds, s *model.Strategy) (pipeline.Strategy, error) {
	from := s.Options.(model.FallbackOptions)
	action, err := registered[fallback.Action](k, model.FallbackAction, from.Action)
	if err != nil {
		return nil, err
	}
	o := from.Options
	if o.Handle, err = k.handle(from.Handle); err != nil {
		return nil, err
	}
	return fallback.New(action, &o), nil
}
