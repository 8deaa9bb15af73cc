package pipeline

import (
	"context"
	"errors"
)

// Embed makes a Strategy of a pipeline, so that it can stand inside another one.
// It keeps its name, its Listener and its events, and closing the outer pipeline
// does not close it. An execution costs one allocation more. A nil p is a
// Validate error.
func Embed(p *Pipeline) Strategy { return embedded{p} }

type embedded struct{ pipeline *Pipeline }

// Pipeline returns the pipeline that is embedded.
func (e embedded) Pipeline() *Pipeline { return e.pipeline }

// Name returns the name of the pipeline.
func (e embedded) Name() string { return e.pipeline.Name() }

// Validate returns an error if the pipeline is nil.
func (e embedded) Validate() error {
	if e.pipeline == nil {
		return errors.New("the embedded pipeline is nil")
	}
	return nil
}

func (e embedded) Execute(ctx context.Context, next Next) (any, error) {
	v := e.pipeline.load()
	if v.bare {
		return next.Run(ctx)
	}
	return e.pipeline.run(ctx, v, &rest{next})
}

// rest is what is left of the outer pipeline, as the inner one's callback.
type rest struct{ Next }

func (r *rest) run(ctx context.Context) (any, error) { return r.Run(ctx) }
