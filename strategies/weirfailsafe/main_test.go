package weirfailsafe_test

import (
	"context"
	"errors"
	"testing"

	"go.uber.org/goleak"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/pipeline"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var errBoom = errors.New("boom")

// recorder keeps the events of a pipeline, but not those of its beginning and end.
type recorder struct{ events []pipeline.Event }

func (r *recorder) Hooks() pipeline.Hooks {
	return pipeline.Hooks{
		OnEvent: r.OnEvent,
	}
}

func (r *recorder) OnEvent(_ context.Context, e pipeline.Event) {
	if e.Name != pipeline.EventPipelineExecuting && e.Name != pipeline.EventPipelineExecuted {
		r.events = append(r.events, e)
	}
}

// with makes a pipeline of one strategy that r listens to; r may be nil.
func with(s pipeline.Strategy, r *recorder) *pipeline.Pipeline {
	c := pipeline.Config{Name: "orders", Strategies: []pipeline.Strategy{s}}
	if r != nil {
		c.Listener = r
	}
	return weir.Must(c.Build())
}
