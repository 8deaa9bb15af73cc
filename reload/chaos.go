package reload

import (
	"context"

	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/registry"
	"github.com/weir-go/weir/strategies/chaos"
)

type chaosFaultOptions struct {
	chaos.FaultOptions `yaml:",inline"`
	Error              string `yaml:"error,omitempty"`
}

type chaosLatencyOptions struct {
	chaos.LatencyOptions `yaml:",inline"`
}

type chaosOutcomeOptions struct {
	Outcome              string `yaml:"outcome"`
	chaos.OutcomeOptions `yaml:",inline"`
}

type chaosBehaviorOptions struct {
	Behavior              string `yaml:"behavior"`
	chaos.BehaviorOptions `yaml:",inline"`
}

// Validate leaves it to the decoder to say that the outcome is missing.
func (o chaosOutcomeOptions) Validate() error {
	o.ResultFunc = func(context.Context) (chaos.Result, bool) { return chaos.Result{}, false }
	return o.OutcomeOptions.Validate()
}

// Validate leaves it to the decoder to say that the behavior is missing.
func (o chaosBehaviorOptions) Validate() error {
	o.BehaviorOptions.Behavior = func(context.Context) error { return nil }
	return o.BehaviorOptions.Validate()
}

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
