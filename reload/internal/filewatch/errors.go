package filewatch

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/weir-go/weir/internal/regularfile"
)

var (
	// ErrNotRegular means that the path leads to something other than a file: a directory or a pipe. Container
	// runtimes put an empty directory where a file that does not exist was to be mounted.
	ErrNotRegular = regularfile.ErrNotRegular
	// ErrTooLarge means that the file has more than [Options.MaxSize] bytes.
	ErrTooLarge = regularfile.ErrTooLarge
	// ErrUnsettled means that no two reads in a row agreed.
	ErrUnsettled = errors.New("keeps changing")
	// ErrRunning is returned by Run while another Run of the same Watcher runs.
	ErrRunning = errors.New("reload: Run is running already")

	errLoadLeft = errors.New("reload: loading left its goroutine")
)

// A ReadError means that the file could not be read, so that there was nothing to load.
type ReadError struct {
	Path string
	Err  error // of the operating system, or ErrNotRegular, ErrTooLarge, ErrUnsettled
}

// newReadError leaves the path and the operation of the operating system's error out, so that the same problem has
// the same text, whichever call has found it.
func newReadError(path string, err error) *ReadError {
	if of, ok := errors.AsType[*fs.PathError](err); ok {
		err = of.Err
	}
	return &ReadError{Path: path, Err: err}
}

func (e *ReadError) Error() string {
	return fmt.Sprintf("reload: cannot read %s: %v", e.Path, e.Err)
}

// Unwrap returns Err.
func (e *ReadError) Unwrap() error { return e.Err }

// Missing reports whether there is no file, or the link to it leads nowhere.
func (e *ReadError) Missing() bool { return errors.Is(e.Err, fs.ErrNotExist) }

// A PanicError means that Load has panicked.
type PanicError struct {
	Value any    // of the panic
	Stack []byte // not in the text, so that the same panic has the same text
}

func (e *PanicError) Error() string { return fmt.Sprintf("reload: loading panicked: %v", e.Value) }

// Unwrap returns Value if it is an error.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

// Permanent wraps an error of [Options.Load] that the same content would cause again, such as a syntax error: the
// content is not tried again until it changes, or by Reload or a signal. The text stays the same. Permanent(nil) is
// nil.
func Permanent(err error) error {
	if err == nil {
		return nil
	}
	return &permanentError{err: err}
}

type permanentError struct{ err error }

func (e *permanentError) Error() string { return e.err.Error() }

func (e *permanentError) Unwrap() error { return e.err }

// sameText reports whether two errors have the same text, or both are nil.
func sameText(a, b error) bool {
	if a == nil || b == nil {
		return a == nil && b == nil
	}
	return a.Error() == b.Error()
}
