package reload

import (
	"context"

	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/registry"
	"github.com/weir-go/weir/strategies/chaos"
)

func buildChaosFault(_ *registry.Builder, k *Kinds, s *strategyModel) (pipeline.Strategy, error) {
	from := s.options.(chaosFaultOptions)
	o := from.FaultOptions
	if from.Error != "" {
		var err error
		if o.Err, err = registered[error](k, chaosError, from.Error); err != nil {
			return nil, err
		}
	}
	return chaos.NewFault(&o), nil
}

func buildChaosLatency(_ *registry.Builder, _ *Kinds, s *strategyModel) (pipeline.Strategy, error) {
	from := s.options.(chaosLatencyOptions)
	return chaos.NewLatency(&from.LatencyOptions), nil
}

func buildChaosOutcome(_ *registry.Builder, k *Kinds, s *strategyModel) (pipeline.Strategy, error) {
	from := s.options.(chaosOutcomeOptions)
	o := from.OutcomeOptions
	var err error
	o.ResultFunc, err = registered[func(context.Context) (chaos.Result, bool)](k, chaosOutcome, from.Outcome)
	if err != nil {
		return nil, err
	}
	return chaos.NewOutcome(&o), nil
}

func buildChaosBehavior(_ *registry.Builder, k *Kinds, s *strategyModel) (pipeline.Strategy, error) {
	from := s.options.(chaosBehaviorOptions)
	o := from.BehaviorOptions
	var err error
	o.Behavior, err = registered[func(context.Context) error](k, chaosBehavior, from.Behavior)
	if err != nil {
		return nil, err
	}
	return chaos.NewBehavior(&o), nil
}
