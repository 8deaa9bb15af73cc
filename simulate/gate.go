package simulate

import (
	"context"
	"slices"

	"github.com/weir-go/weir/internal/deterministic"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/strategies/hedge"
	"github.com/weir-go/weir/strategies/ratelimit"
)

// A gate is before, between and after the strategies of a pipeline. Executions take their turn there, on the way in and
// on the way out.
type gate struct {
	run           *run
	beforeLimiter bool                // the strategy after the gate is a rate limiter
	limiter       *ratelimit.Strategy // the strategy before the gate; nil if it is no rate limiter
	beforeHedge   bool                // the strategy after the gate runs attempts in goroutines of their own
	afterHedge    bool                // the strategy before the gate does
	name          string              // of the strategy after the gate, which can fail in place of those behind it
}

// Execute runs the rest of the pipeline.
func (g *gate) Execute(ctx context.Context, next pipeline.Next) (any, error) {
	t := taskOf(ctx)
	if t == nil { // not a request of the simulation
		return next.Run(ctx)
	}
	if g.afterHedge {
		attempt := newTask(t.turns, t.request)
		attempt.order = append(slices.Clip(t.order), t.races, hedge.AttemptNumber(ctx))
		attempt.permits = t.permits
		t = attempt
		ctx = context.WithValue(ctx, deterministic.TurnKey{}, t)
	}
	t.Take()
	t.passed = true
	if g.limiter != nil {
		g.run.granted(t)
		t.permits = max(t.permits, costOf(ctx, g.limiter))
	}
	if g.name != "" {
		t.passed, t.request.failedBy = false, ""
	}
	switch {
	case g.beforeLimiter:
		g.run.asks(t)
	case g.beforeHedge:
		t.races++
	}
	result, err := next.Run(ctx)
	t.Take()
	if g.beforeLimiter {
		g.run.refused(t)
	}
	if g.name != "" && err != nil && !t.passed && ctx.Err() == nil {
		t.request.failedBy = nameOf(pipeline.Source{Pipeline: next.Source().Pipeline, Strategy: g.name})
		t.passed = true // for the gates before this one
	}
	return result, err
}

// costOf returns how many permits a limiter was asked for.
func costOf(ctx context.Context, s *ratelimit.Strategy) int {
	if permits := s.Options().Permits; permits != nil {
		return permits(ctx)
	}
	return 1
}

// An interposer is the listener of a registry of a run. It puts gates between strategies, and hears nothing.
type interposer struct{ run *run }

// Hooks implements [pipeline.Listener].
func (interposer) Hooks() pipeline.Hooks { return pipeline.Hooks{} }

// Interpose returns the strategies with gates.
func (i interposer) Interpose(strategies []pipeline.Strategy) []pipeline.Strategy {
	all := make([]pipeline.Strategy, 0, 2*len(strategies)+1)
	g := &gate{run: i.run}
	for _, s := range strategies {
		limiter, limits := s.(*ratelimit.Strategy)
		_, hedges := s.(*hedge.Strategy)
		g.beforeLimiter, g.beforeHedge = limits, hedges
		if named, ok := s.(interface{ Name() string }); ok && !hedges { // the tasks of its attempts pass what is behind a hedge
			g.name = named.Name()
		}
		all = append(all, g, s)
		g = &gate{run: i.run, limiter: limiter, afterHedge: hedges}
	}
	return append(all, g)
}
