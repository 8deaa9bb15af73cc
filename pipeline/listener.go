package pipeline

import (
	"context"
	"slices"

	"github.com/weir-go/weir/internal/isnil"
)

// A Listener receives the events of pipelines. It is called synchronously, in the goroutine that runs the execution, and
// by many goroutines at once; the execution waits for it. A panic in it is not recovered.
//
// A Listener can have more methods:
//
//   - Enabled(ctx context.Context) bool is called when an execution begins. If it returns false, the execution reports
//     nothing, and costs what it would without a Listener.
//   - Executions() bool is called when a pipeline is made. If it returns false, the Listener gets only what is out of the
//     ordinary: neither [EventPipelineExecuting], [EventPipelineExecuted] nor [EventExecutionAttempt]. Executions do not
//     pay for these events then, unless another Listener wants them. Enabled is not called. [Event.Operation] can be
//     empty; OnEvent can call [Operation].
//   - Forget(Source) is called by a registry when a pipeline was removed and reports no more events. The Source is
//     that of the pipeline, without a Strategy.
//   - InForce(*Pipeline) is called by a registry when a version of that pipeline has come into force, the first one
//     included, before the event that reports a reload.
type Listener interface {
	OnEvent(ctx context.Context, e Event)
}

// An enabler is a Listener that does not want the events of every execution.
type enabler interface {
	Enabled(ctx context.Context) bool
}

// enablerOf returns l as an enabler, or nil if l wants all events. A fanOut has the method Enabled in any case, and
// wants all events unless all its listeners are enablers.
func enablerOf(l Listener) enabler {
	if all, many := l.(fanOut); many && !all.allEnablers() {
		return nil
	}
	e, _ := l.(enabler)
	return e
}

// splitListener returns the listeners that want the events of every execution, and the others. Each is nil if there are
// none.
func splitListener(l Listener) (executions, others Listener) {
	all, many := l.(fanOut)
	if !many {
		all = fanOut{l}
	}
	var e, o fanOut
	for _, l := range all {
		if x, ok := l.(interface{ Executions() bool }); ok && !x.Executions() {
			o = append(o, l)
		} else {
			e = append(e, l)
		}
	}
	return Listeners(e...), Listeners(o...)
}

// A ListenerFunc is a function that is a [Listener].
type ListenerFunc func(ctx context.Context, e Event)

// OnEvent calls f.
func (f ListenerFunc) OnEvent(ctx context.Context, e Event) { f(ctx, e) }

// Listeners returns a Listener that hands events to each of ls, in order. It leaves out nil listeners. If none is
// left, it returns nil.
func Listeners(ls ...Listener) Listener {
	var all fanOut
	for _, l := range ls {
		if several, ok := l.(fanOut); ok {
			all = append(all, several...)
		} else if !isnil.Value(l) {
			all = append(all, l)
		}
	}
	switch len(all) {
	case 0:
		return nil
	case 1:
		return all[0]
	default:
		return all
	}
}

// A fanOut is a Listener that hands events to several listeners, none of which is a fanOut. It has the methods of all
// optional interfaces, and each method calls the listeners that have it.
type fanOut []Listener

// OnEvent hands e to every listener.
func (f fanOut) OnEvent(ctx context.Context, e Event) {
	for _, l := range f {
		l.OnEvent(ctx, e)
	}
}

// Enabled reports whether at least one listener wants the events.
func (f fanOut) Enabled(ctx context.Context) bool {
	return slices.ContainsFunc(f, func(l Listener) bool {
		e, ok := l.(enabler)
		return !ok || e.Enabled(ctx)
	})
}

// allEnablers reports whether every listener is an enabler. If one is not, Enabled is always true.
func (f fanOut) allEnablers() bool {
	return !slices.ContainsFunc(f, func(l Listener) bool {
		_, ok := l.(enabler)
		return !ok
	})
}

// InForce calls the listeners that have the method.
func (f fanOut) InForce(p *Pipeline) {
	for _, l := range f {
		if l, ok := l.(interface{ InForce(p *Pipeline) }); ok {
			l.InForce(p)
		}
	}
}

// Forget calls the listeners that have the method.
func (f fanOut) Forget(s Source) {
	for _, l := range f {
		if l, ok := l.(interface{ Forget(Source) }); ok {
			l.Forget(s)
		}
	}
}
