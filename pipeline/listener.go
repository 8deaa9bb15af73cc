package pipeline

import (
	"context"

	"github.com/weir-go/weir/internal/isnil"
)

// A Listener is told what happens in pipelines. A [Hooks] and a [ListenerFunc] are Listeners; a type with more to it, such
// as telemetry.Telemetry, returns its Hooks. The Hooks of a Listener must always be the same.
type Listener interface {
	Hooks() Hooks
}

// Hooks are the functions that a [Listener] wants to have called. Each of them can be nil. They are called by many goroutines
// at once, and synchronously: the execution waits for them. A panic in one is not recovered.
type Hooks struct {
	// OnEvent gets the events.
	OnEvent func(ctx context.Context, e Event)
	// Rare says that OnEvent wants only what is out of the ordinary: neither [EventPipelineExecuting],
	// [EventPipelineExecuted] nor [EventExecutionAttempt]. Executions do not pay for these events then, unless another
	// Listener wants them. [Event.Operation] can be empty; OnEvent can call [Operation].
	Rare bool
	// Enabled is called when an execution begins, unless Rare is set or OnEvent is nil. If it returns false, the execution reports nothing,
	// and costs what it would without the Listener.
	Enabled func(ctx context.Context) bool
	// OnMeasurement gets the measurements, which strategies make in every execution, such as how long an execution waited
	// for a permit. They are events of severity [SeverityNone], with the names that the strategies document. If what was
	// measured begins something, as the grant of a permit does, the function that OnMeasurement returns, unless it is nil,
	// is called with the measurement of the end.
	OnMeasurement func(ctx context.Context, e Event) (ended func(ctx context.Context, e Event))
	// InForce is called by a registry when a version of that pipeline has come into force, the first one included, before
	// the event that reports a reload.
	InForce func(p *Pipeline)
	// Forget is called by a registry when a pipeline was removed and reports no more events. The Source is that of the
	// pipeline, without a Strategy. If the pipeline is defined again, InForce is called when Forget has returned, which can
	// be after the Define of package registry has.
	Forget func(s Source)
}

// Hooks returns h: Hooks are a [Listener].
func (h Hooks) Hooks() Hooks { return h }

// A ListenerFunc is a function that is a [Listener]: the OnEvent of [Hooks].
type ListenerFunc func(ctx context.Context, e Event)

// Hooks implements [Listener].
func (f ListenerFunc) Hooks() Hooks { return Hooks{OnEvent: f} }

// HooksOf returns the Hooks of l. They are zero if l is nil, or an interface that holds a nil pointer or func.
func HooksOf(l Listener) Hooks { return hooksOf(l).Hooks() }

// Listeners returns a Listener that hands events to each of ls, in order. It leaves out nil listeners. If none is
// left, it returns nil.
func Listeners(ls ...Listener) Listener {
	var all listeners
	for _, l := range ls {
		all = append(all, hooksOf(l)...)
	}
	if all == nil {
		return nil
	}
	return all
}

// listeners are the Hooks of several listeners.
type listeners []Hooks

// hooksOf returns the Hooks of each listener in l.
func hooksOf(l Listener) listeners {
	if several, ok := l.(listeners); ok || isnil.Value(l) {
		return several
	}
	return listeners{l.Hooks()}
}

// Hooks returns Hooks that call those of every listener. An execution is enabled if it is for one of them.
func (ls listeners) Hooks() Hooks {
	if len(ls) == 0 {
		return Hooks{}
	}
	all := ls[0]
	for _, h := range ls[1:] {
		all = all.and(h)
	}
	return all
}

// and returns Hooks that call those of h and then those of g.
func (h Hooks) and(g Hooks) Hooks {
	both := Hooks{
		Rare:          h.Rare && g.Rare,
		OnEvent:       inTurn(h.OnEvent, g.OnEvent),
		OnMeasurement: h.OnMeasurement,
		InForce:       h.InForce,
		Forget:        h.Forget,
	}
	if a, b := h.Enabled, g.Enabled; a != nil && b != nil {
		both.Enabled = func(ctx context.Context) bool { return a(ctx) || b(ctx) }
	}
	if a, b := h.OnMeasurement, g.OnMeasurement; a == nil {
		both.OnMeasurement = b
	} else if b != nil {
		both.OnMeasurement = func(ctx context.Context, e Event) func(context.Context, Event) {
			return inTurn(a(ctx, e), b(ctx, e))
		}
	}
	if a, b := h.InForce, g.InForce; a == nil {
		both.InForce = b
	} else if b != nil {
		both.InForce = func(p *Pipeline) { a(p); b(p) }
	}
	if a, b := h.Forget, g.Forget; a == nil {
		both.Forget = b
	} else if b != nil {
		both.Forget = func(s Source) { a(s); b(s) }
	}
	return both
}

// inTurn returns a function that calls a and then b, or the one that is not nil.
func inTurn(a, b func(context.Context, Event)) func(context.Context, Event) {
	switch {
	case a == nil:
		return b
	case b == nil:
		return a
	default:
		return func(ctx context.Context, e Event) { a(ctx, e); b(ctx, e) }
	}
}
