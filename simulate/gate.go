package simulate

import (
	"context"
	"slices"

	"github.com/weir-go/weir/internal/deterministic"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/strategies/hedge"
	"github.com/weir-go/weir/strategies/ratelimit"
)

// A gate is a step before, between and after the strategies of a pipeline. An execution takes its turn there, on the way in
// and on the way out.
type gate struct {
	run           *run
	beforeLimiter bool   // the strategy after the gate is a rate limiter
	beforeHedge   bool   // the strategy after the gate is a hedge, whose attempts have goroutines of their own
	afterHedge    bool   // the strategy before the gate is one
	name          string // the strategy after the gate, if it has a name and is no hedge: its errors are reasons of failures
}

// Execute runs the rest of the pipeline.
func (g *gate) Execute(ctx context.Context, next pipeline.Next) (any, error) {
	t := taskOf(ctx)
	if t == nil { // not a request of the simulation
		return next.Run(ctx)
	}
	if g.afterHedge {
		attempt := newTask(t.turns, t.request)
		attempt.order = append(slices.Clip(t.order), t.hedges, hedge.AttemptNumber(ctx))
		attempt.permits = t.permits
		t = attempt
		ctx = context.WithValue(ctx, deterministic.TurnKey{}, t)
	}
	t.Take()
	g.run.granted(t)
	t.inner = true
	if g.name != "" {
		t.inner, t.request.failedBy = false, ""
	}
	switch {
	case g.beforeLimiter:
		g.run.asks(t)
	case g.beforeHedge:
		t.hedges++
	}
	result, err := next.Run(ctx)
	t.Take()
	if g.beforeLimiter {
		g.run.refused(t)
	}
	if g.name != "" && err != nil && !t.inner && ctx.Err() == nil {
		t.request.failedBy = nameOf(pipeline.Source{Pipeline: next.Source().Pipeline, Strategy: g.name})
		t.inner = true // the strategies before this one have called it
	}
	return result, err
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
		_, g.beforeLimiter = s.(*ratelimit.Strategy)
		_, g.beforeHedge = s.(*hedge.Strategy)
		if named, ok := s.(interface{ Name() string }); ok && !g.beforeHedge { // the tasks of its attempts pass what is behind a hedge
			g.name = named.Name()
		}
		all = append(all, g, s)
		g = &gate{run: i.run, afterHedge: g.beforeHedge}
	}
	return append(all, g)
}
