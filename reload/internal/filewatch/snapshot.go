package filewatch

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"runtime/debug"

	"github.com/weir-go/weir/internal/regularfile"
	"github.com/weir-go/weir/registry"
)

// MaxSize is the size of the largest file that is read. A decoder can have a lower bound, with a better error.
const MaxSize = 8 << 20

// A ReadError means that the file could not be read, so that there was nothing to load.
type ReadError struct {
	Path string
	Err  error // of the operating system or package regularfile
}

func (e *ReadError) Error() string {
	return fmt.Sprintf("reload: cannot read %s: %v", e.Path, e.Err)
}

// Unwrap returns Err.
func (e *ReadError) Unwrap() error { return e.Err }

// Missing reports whether there is no file, or the link to it leads nowhere.
func (e *ReadError) Missing() bool { return errors.Is(e.Err, fs.ErrNotExist) }

// A snapshot is the result of one read: the content, or why there was none. The zero value equals no other: no
// content has that hash.
type snapshot struct {
	sum     [sha256.Size]byte
	content []byte // not compared
	err     error
}

// equal reports whether two reads agree: both have the same content, or the same error.
func (s snapshot) equal(o snapshot) bool {
	return s.sum == o.sum && sameText(s.err, o.err)
}

// withoutContent returns s for later comparisons.
func (s snapshot) withoutContent() snapshot {
	s.content = nil
	return s
}

// read reads the file. From an error of the operating system, it removes the path and the name of the system call, so
// that a problem has the same text whether it was found when the file was opened or when it was read.
func (w *Watcher) read() snapshot {
	if w.options.Read != nil {
		return w.readOther()
	}
	content, err := regularfile.Read(w.options.Path, MaxSize)
	if of, ok := errors.AsType[*fs.PathError](err); ok {
		err = of.Err
	}
	if err != nil {
		return w.unreadable(err)
	}
	return snapshot{sum: sha256.Sum256(content), content: content}
}

// readOther is read for content that is not that of one file.
func (w *Watcher) readOther() (s snapshot) {
	defer func() {
		if p := recover(); p != nil {
			s = snapshot{err: fmt.Errorf("reload: Read: %w", &registry.PanicError{Value: p, Stack: debug.Stack()})}
		}
	}()
	content, err := w.options.Read()
	if err != nil {
		return snapshot{err: err}
	}
	return snapshot{sum: sha256.Sum256(content), content: content}
}

func (w *Watcher) unreadable(err error) snapshot {
	return snapshot{err: &ReadError{Path: w.options.Path, Err: err}}
}
