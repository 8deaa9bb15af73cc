package registry

import (
	"github.com/weir-go/weir/internal/recovered"
	"github.com/weir-go/weir/internal/validate"
)

var (
	// ErrClosed is returned by the methods of a closed [Registry]. Executions of its pipelines return it together
	// with [pipeline.ErrClosed].
	ErrClosed = named("registry.ErrClosed", "registry: closed")
	// ErrNotDefined means that no pipeline of that name is defined.
	ErrNotDefined = named("registry.ErrNotDefined", "registry: not defined")
	// ErrDefined means that a pipeline of that name is defined already.
	ErrDefined = named("registry.ErrDefined", "registry: defined already")
	// ErrRemoved is returned by executions of a pipeline whose definition or instance was removed, together with
	// [pipeline.ErrClosed], and by the build of a pipeline that contains a removed one.
	ErrRemoved = named("registry.ErrRemoved", "registry: removed")
	// ErrTooManyInstances means that a pipeline has [Options.MaxInstances] instances already.
	ErrTooManyInstances = named("registry.ErrTooManyInstances", "registry: too many instances")
	// ErrCycle means that a pipeline contains itself, directly or through others.
	ErrCycle = named("registry.ErrCycle", "registry: a pipeline contains itself")
	// ErrReloading means that a build function or a Listener has begun a change. See [Registry.Reload].
	ErrReloading = named("registry.ErrReloading", "registry: a reload or a first build is under way")
	// ErrLimiterConflict means that pipelines name the same limiter with different options.
	ErrLimiterConflict = named("registry.ErrLimiterConflict", "registry: limiter options disagree")
	// ErrNoLimiter means that no version in force uses a limiter of that name.
	ErrNoLimiter = named("registry.ErrNoLimiter", "registry: no pipeline in force uses a limiter of that name")
	// ErrNotOverridden means that the limits of the limiter are not overridden, for example because the override has
	// ended already.
	ErrNotOverridden = named("registry.ErrNotOverridden", "registry: the limiter is not overridden")
	// ErrDrainTimeout means that a version was disposed of while executions still ran on it. See
	// [Options.DrainTimeout].
	ErrDrainTimeout = named("registry.ErrDrainTimeout", "registry: executions still running")
)

// A namedError has a name for telemetry (the attribute error.type), where all errors of errors.New look the same.
type namedError struct{ name, text string }

func named(name, text string) error { return &namedError{name, text} }

func (e *namedError) Error() string     { return e.text }
func (e *namedError) ErrorType() string { return e.name }

// A PanicError is the error of a build whose [BuildFunc] has panicked. It has the fields Value any, the value of the panic, which
// it wraps if that is an error, and Stack []byte, which is not part of the text: the same panic has the same text each time.
type PanicError = recovered.PanicError

// notSet is the error of a call whose argument of that name is nil.
func notSet(argument string) error {
	var p validate.Problems
	p.Add(argument, nil, "must not be nil")
	return p.Err("registry")
}
