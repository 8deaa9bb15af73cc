package registry

import "fmt"

// A faultError is an error for which some pipelines are to blame, and others that
// are part of the same change are not.
type faultError struct {
	error
	of []id
}

func (e *faultError) Unwrap() error { return e.error }

var (
	// ErrClosed is returned by the methods of a closed [Registry], and by
	// executions of its pipelines, where it comes with [pipeline.ErrClosed].
	ErrClosed = named("registry.ErrClosed", "registry: closed")
	// ErrNotDefined means that there is no definition of that name.
	ErrNotDefined = named("registry.ErrNotDefined", "registry: not defined")
	// ErrDefined means that there is a definition of that name already.
	ErrDefined = named("registry.ErrDefined", "registry: defined already")
	// ErrRemoved is returned by executions of a pipeline whose definition or
	// instance was removed, where it comes with [pipeline.ErrClosed], and by a build of
	// one that contains such a pipeline.
	ErrRemoved = named("registry.ErrRemoved", "registry: removed")
	// ErrTooManyInstances is for an instance beyond [Options.MaxInstances].
	ErrTooManyInstances = named("registry.ErrTooManyInstances", "registry: too many instances")
	// ErrCycle means that a pipeline contains itself, maybe through others.
	ErrCycle = named("registry.ErrCycle", "registry: a pipeline contains itself")
	// ErrReloading means that a reload would wait for itself, for example one that a build
	// function or a Listener of a reload begins. See [Registry.Reload].
	ErrReloading = named("registry.ErrReloading", "registry: a reload or a first build is under way")
	// ErrLimiterConflict means that pipelines want a limiter of the same name
	// with different options.
	ErrLimiterConflict = named("registry.ErrLimiterConflict", "registry: limiter options disagree")
	// ErrDrainTimeout means that a version was disposed of while executions still ran on
	// it, see [Options.DrainTimeout].
	ErrDrainTimeout = named("registry.ErrDrainTimeout", "registry: executions still running")
)

// A namedError says its name to telemetry, as error.type: all that errors.New makes
// looks the same there.
type namedError struct{ name, text string }

func named(name, text string) error { return &namedError{name, text} }

func (e *namedError) Error() string     { return e.text }
func (e *namedError) ErrorType() string { return e.name }

// PanicError is the error of a build whose [BuildFunc] panicked.
type PanicError struct {
	// Value is what it panicked with.
	Value any
	// Stack is where. It is not part of the text: that goes into logs, and is the
	// same each time it happens.
	Stack []byte
}

// Error says what it panicked with.
func (e *PanicError) Error() string { return fmt.Sprintf("panic: %v", e.Value) }

// Unwrap returns Value if it is an error.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}
