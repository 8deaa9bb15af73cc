package pipeline

import "context"

// Embed makes a Strategy of p, so that p can be part of another pipeline. p keeps its name, its Listener and its
// events, and closing the outer pipeline does not close it. Embedding costs one allocation for each execution. If p
// is nil, building the outer pipeline fails.
func Embed(p *Pipeline) Strategy {
	if p == nil {
		return nil
	}
	return embedded{p}
}

type embedded struct{ pipeline *Pipeline }

// Pipeline returns the pipeline that is embedded.
func (e embedded) Pipeline() *Pipeline { return e.pipeline }

func (e embedded) Name() string { return e.pipeline.Name() }

// Execute runs next through the pipeline.
func (e embedded) Execute(ctx context.Context, next Next) (any, error) {
	v := e.pipeline.load()
	if v.isBare() {
		return next.Run(ctx)
	}
	return e.pipeline.run(ctx, v, &outerNext{next})
}

// outerNext is what remains of the outer pipeline, as the callback of the embedded one.
type outerNext struct{ Next }

func (n *outerNext) run(ctx context.Context) (any, error) { return n.Run(ctx) }

// closed is the strategy of a pipeline that is closed, or of a [Reloadable] without a version.
type closed struct {
	err error
	// retired is the version that Retire replaced, or nil.
	//
	// A reload can remove a pipeline together with the pipelines that embed it. Suppose that an execution on an outer
	// pipeline began before the reload and reaches this pipeline after the reload. It must not fail, because its own
	// version is still in force for it. So it runs on the version that was retired, whose strategies a registry closes only
	// when the outer version, which counts the execution, is drained.
	retired *version
}

// Execute returns ErrClosed, except to an execution on a version of another Reloadable, which can embed this pipeline in one
// that is not a Reloadable's.
func (c closed) Execute(ctx context.Context, next Next) (any, error) {
	for outer, ok := next.callback.(*outerNext); ok && c.retired != nil; outer, ok = outer.callback.(*outerNext) {
		if outer.step.tracker != nil {
			return c.retired.run(ctx, next.callback)
		}
	}
	return nil, c.err
}
