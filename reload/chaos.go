package reload

import (
	"context"

	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/registry"
	"github.com/weir-go/weir/reload/internal/model"
	"github.com/weir-go/weir/strategies/chaos"
)

func buildChaosFault(_ *registry.Builder, k *Kinds, s *model.Strategy) (pipeline.Strategy, error) {
	from := s.Options.(model.ChaosFaultOptions)
	o := from.FaultOptions
	if from.Error != "" {
		var err error
		if o.Err, err = registered[error](k, model.ChaosError, from.Error); err != nil {
			return nil, err
		}
	}
	return chaos.NewFault(&o), nil
}

func buildChaosLatency(_ *registry.Builder, _ *Kinds, s *model.Strategy) (pipeline.Strategy, error) {
	from := s.Options.(model.ChaosLatencyOptions)
	return chaos.NewLatency(&from.LatencyOptions), nil
}

func buildChaosOutcome(_ *registry.Builder, k *Kinds, s *model.Strategy) (pipeline.Strategy, error) {
	from := s.Options.(model.ChaosOutcomeOptions)
	o := from.OutcomeOptions
	var err error
	o.ResultFunc, err = registered[func(context.Context) (chaos.Result, bool)](k, model.ChaosOutcome, from.Outcome)
	if err != nil {
		return nil, err
	}
	return chaos.NewOutcome(&o), nil
}

func buildChaosBehavior(_ *registry.Builder, k *Kinds, s *model.Strategy) (pipeline.Strategy, error) {
	from := s.Options.(model.ChaosBehaviorOptions)
	o := from.BehaviorOptions
	var err error
	o.Behavior, err = registered[func(context.Context) error](k, model.ChaosBehavior, from.Behavior)
	if err != nil {
		return nil, err
	}
	return chaos.NewBehavior(&o), nil
}
