package filewatch

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/weir-go/weir/internal/regularfile"
)

var (
	// ErrNotRegular is that there is something else than a file: a directory, a
	// pipe. An empty directory is what container runtimes put where a file was to
	// be mounted that does not exist.
	ErrNotRegular = regularfile.ErrNotRegular
	// ErrTooLarge is that the file has more than [Options.MaxSize] bytes.
	ErrTooLarge = regularfile.ErrTooLarge
	// ErrUnsettled is that the file kept changing from read to read.
	ErrUnsettled = errors.New("keeps changing")
	// ErrRunning is what Run returns while another Run of the same Watcher goes on.
	ErrRunning = errors.New("reload: Run is running already")

	errLeft = errors.New("reload: loading left its goroutine")
)

// A ReadError is that the file could not be read, so that there was nothing to
// load.
type ReadError struct {
	Path string
	Err  error // of the operating system, or ErrNotRegular, ErrTooLarge, ErrUnsettled
}

// newReadError takes the path and the operation out of the operating system's
// error: which of several calls found it is no difference.
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

// Missing tells whether there is no file, or the link to it leads nowhere.
func (e *ReadError) Missing() bool { return errors.Is(e.Err, fs.ErrNotExist) }

// A PanicError is that Load panicked.
type PanicError struct {
	Value any    // what it panicked with
	Stack []byte // where; not in the text, so that the same panic has the same text
}

func (e *PanicError) Error() string { return fmt.Sprintf("reload: loading panicked: %v", e.Value) }

// Unwrap returns Value if it is an error.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

// Permanent wraps an error of [Options.Load] that the same content would cause
// again, such as one of syntax: it is not retried until the content changes or
// somebody asks. The text stays as it is. Permanent(nil) is nil.
func Permanent(err error) error {
	if err == nil {
		return nil
	}
	return &permanentError{err: err}
}

type permanentError struct{ err error }

func (e *permanentError) Error() string { return e.err.Error() }

func (e *permanentError) Unwrap() error { return e.err }

// sameText tells whether two errors say the same, or both are nil.
func sameText(a, b error) bool {
	if a == nil || b == nil {
		return a == nil && b == nil
	}
	return a.Error() == b.Error()
}
