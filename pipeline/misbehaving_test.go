package pipeline_test

import (
	"context"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/pipeline"
)

// hooked is a strategy and a listener whose methods call at.
type hooked struct {
	at func(method string, ctx context.Context)
}

func (h *hooked) Execute(ctx context.Context, next pipeline.Next) (any, error) {
	h.at("before", ctx)
	begun := next.MeasureBegin(ctx, pipeline.Event{Name: "held"})
	defer next.MeasureEnd(ctx, pipeline.Event{Name: "held"}, begun)
	next.Measure(ctx, pipeline.Event{Name: "waited"})
	next.Report(ctx, pipeline.Event{Name: "reported", Severity: pipeline.SeverityWarning})
	v, err := next.Run(ctx)
	h.at("after", ctx)
	return v, err
}

func (h *hooked) OnEvent(ctx context.Context, e pipeline.Event)       { h.at(e.Name, ctx) }
func (h *hooked) OnMeasurement(ctx context.Context, e pipeline.Event) { h.at(e.Name, ctx) }

func (h *hooked) BeginMeasurement(ctx context.Context, e pipeline.Event) any {
	h.at("begin "+e.Name, ctx)
	return e.Name
}

func (h *hooked) EndMeasurement(ctx context.Context, e pipeline.Event, _ any) {
	h.at("end "+e.Name, ctx)
}

func (h *hooked) Enabled(ctx context.Context) bool {
	h.at("Enabled", ctx)
	return true
}

// Each function of the program panics, leaves the goroutine, blocks until it is cancelled, runs the
// pipeline again, or puts another version in its place. A version that was replaced is drained all the
// same, and the pipeline goes on working.
func TestReloadable_FunctionsThatMisbehave(t *testing.T) {
	type replacing struct {
		*pipeline.Reloadable
		prepare func() *pipeline.Prepared
		retired []*pipeline.Retired
	}
	misbehaviors := map[string]func(ctx context.Context, r *replacing){
		"panic":  func(context.Context, *replacing) { panic("hook") },
		"goexit": func(context.Context, *replacing) { runtime.Goexit() },
		"block":  func(ctx context.Context, _ *replacing) { <-ctx.Done() },
		"again":  func(ctx context.Context, r *replacing) { _ = r.Pipeline().Execute(ctx, succeeding) },
		"replace": func(ctx context.Context, r *replacing) {
			r.retired = append(r.retired, weir.Must(r.Put(r.prepare())))
			_ = r.Pipeline().Describe()
			_ = r.Pipeline().Execute(ctx, succeeding)
		},
	}
	hooks := []string{
		"Enabled", pipeline.EventPipelineExecuting, "before", "begin held", "waited", "reported", "callback", "after",
		"end held", pipeline.EventPipelineExecuted,
	}
	for _, hook := range hooks {
		for how, misbehave := range misbehaviors {
			for _, several := range []bool{false, true} {
				t.Run(hook+"/"+how+map[bool]string{true: "/two listeners"}[several], func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						r := &replacing{Reloadable: pipeline.NewReloadable("p", "")}
						armed := true
						h := &hooked{at: func(method string, ctx context.Context) {
							if armed && method == hook {
								armed = false
								misbehave(ctx, r)
							}
						}}
						var listener pipeline.Listener = h
						if several {
							listener = pipeline.Listeners(h, &hooked{at: func(string, context.Context) {}})
						}
						r.prepare = func() *pipeline.Prepared {
							prepared, err := pipeline.Config{Name: "p", Strategies: []pipeline.Strategy{h}, Listener: listener}.Prepare()
							assert.NoError(t, err)
							return prepared
						}
						weir.Must(r.Put(r.prepare()))
						returned := false
						ended := make(chan struct{})
						go func() {
							defer close(ended)
							defer func() { _ = recover() }()
							ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
							defer cancel()
							_ = r.Pipeline().Execute(ctx, func(ctx context.Context) error {
								h.at("callback", ctx)
								return nil
							})
							returned = true
						}()
						<-ended
						assert.False(t, armed, "it was called")
						assert.Equal(t, how != "panic" && how != "goexit", returned)
						assert.NoError(t, r.Pipeline().Execute(t.Context(), succeeding))
						for _, old := range append(r.retired, r.Retire(nil)) {
							assert.Zero(t, old.Running())
							assert.NoError(t, old.Wait(t.Context()))
							assert.NoError(t, old.Close())
						}
					})
				})
			}
		}
	}
}

func succeeding(context.Context) error { return nil }

// closable is a strategy whose Close is close.
type closable struct {
	passThrough
	close func() error
}

func (c *closable) Close() error { return c.close() }

// Every strategy is closed, whatever the Close of another one does.
func TestPipeline_CloseOfAStrategyThatMisbehaves(t *testing.T) {
	var p *pipeline.Pipeline
	for how, misbehave := range map[string]func() error{
		"panic":  func() error { panic("hook") },
		"goexit": func() error { runtime.Goexit(); return nil },
		"again":  func() error { return p.Close() },
		"run":    func() error { return p.Execute(context.Background(), succeeding) },
	} {
		for at := range 3 {
			closed := 0
			strategies := make([]pipeline.Strategy, 3)
			for i := range strategies {
				strategies[i] = &closable{close: func() error {
					closed++
					if i == at {
						return misbehave()
					}
					return nil
				}}
			}
			p = weir.Must(pipeline.New("p", strategies...))
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				_ = p.Close()
			}()
			<-ended
			assert.Equal(t, 3, closed, how)
			assert.ErrorIs(t, p.Execute(t.Context(), succeeding), pipeline.ErrClosed)
		}
	}
}
