package registry

import "errors"

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
	ErrClosed = errors.New("registry: closed")
	// ErrNotDefined means that there is no definition of that name.
	ErrNotDefined = errors.New("registry: not defined")
	// ErrDefined means that there is a definition of that name already.
	ErrDefined = errors.New("registry: defined already")
	// ErrRemoved is returned by executions of a pipeline whose definition or
	// instance was removed. It comes with [pipeline.ErrClosed].
	ErrRemoved = errors.New("registry: removed")
	// ErrTooManyInstances is for an instance beyond [Options.MaxInstances].
	ErrTooManyInstances = errors.New("registry: too many instances")
	// ErrCycle means that a pipeline contains itself, maybe through others.
	ErrCycle = errors.New("registry: a pipeline contains itself")
	// ErrLimiterConflict means that pipelines want a limiter of the same name
	// with different options.
	ErrLimiterConflict = errors.New("registry: limiter options disagree")
	// ErrDrainTimeout means that a version was disposed of while executions still ran on
	// it, see [Options.DrainTimeout].
	ErrDrainTimeout = errors.New("registry: executions still running")
)
