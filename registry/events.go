package registry

import (
	"context"

	"github.com/weir-go/weir/internal/recovered"
	"github.com/weir-go/weir/pipeline"
)

// The events of a registry. [Options.Listener] gets them with the name and the instance of the pipeline, and without a
// strategy. Events about an override have the name of the limiter as the strategy instead, and no pipeline, because a
// limiter can belong to several; their Result is the [Override].
const (
	// EventReload means that a new version is in force. Duration is how long its build took. Its severity is
	// Information.
	EventReload = "OnReload"
	// EventReloadFailed means that the version in force stays. Err is the reason. Its severity is Error.
	EventReloadFailed = "ReloadFailed"
	// EventRemoved means that a change has removed a pipeline that [Registry.Get] or [Registry.GetInstance] has
	// returned. Its executions return [ErrRemoved] until the name is defined again. [Registry.Remove] and
	// [Registry.RemoveInstance] do not report it. Its severity is Warning.
	EventRemoved = "OnPipelineRemoved"
	// EventDisposeFailed means that disposing of a version has failed. Err is the reason: [ErrDrainTimeout] if
	// executions still ran on it. Its severity is Error.
	EventDisposeFailed = "DisposeFailed"
	// EventOverridden means that [Registry.Override] has replaced the limits of a limiter. Its severity is Warning.
	EventOverridden = "OnLimiterOverridden"
	// EventOverrideEnded means that the limiter has the limits again that the configuration wants. [Override.Ended] is
	// why. Its severity is Information.
	EventOverrideEnded = "OnLimiterOverrideEnded"
)

// events tells the program's Listener what happens.
type events struct{ hooks pipeline.Hooks }

// A marker is the key of the value in the contexts of functions that must not begin a change or wait for Close.
type marker struct{ of *events }

func (e *events) mark(ctx context.Context) context.Context {
	return context.WithValue(ctx, marker{e}, true)
}

// marked reports whether ctx is that of a build or an event of the registry.
func (e *events) marked(ctx context.Context) bool { return ctx.Value(marker{e}) != nil }

// report calls the Listener. A panic of the Listener is logged: what it is told of has happened.
func (e *events) report(ctx context.Context, of pipeline.Source, event pipeline.Event) {
	if e.hooks.OnEvent == nil {
		return
	}
	event.Source, event.Operation = of, pipeline.Operation(ctx)
	recovered.Hook("registry: Listener.OnEvent", func() { e.hooks.OnEvent(e.mark(ctx), event) })
}

func (e *events) failed(ctx context.Context, of pipeline.Source, name string, err error) {
	e.report(ctx, of, pipeline.Event{Name: name, Severity: pipeline.SeverityError, Err: err})
}
