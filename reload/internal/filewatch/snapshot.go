package filewatch

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"runtime/debug"
	"time"

	"github.com/weir-go/weir/internal/regularfile"
	"github.com/weir-go/weir/registry"
)

// MaxSize is the size of the largest file that is read. A decoder can have a lower bound, with a better error.
const MaxSize = 8 << 20

// maxReads is how many reads in a row can disagree. With a Settle of 200 ms this takes ten seconds, enough to copy a
// large file over a slow connection.
const maxReads = 50

// ErrUnsettled means that no two reads in a row agreed.
var ErrUnsettled = errors.New("keeps changing")

// A ReadError means that the file could not be read, so that there was nothing to load.
type ReadError struct {
	Path string
	Err  error // of the operating system or package regularfile, or ErrUnsettled
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

// settle reads until two reads in a row agree, and returns the last snapshot. If maxReads reads disagree, the snapshot
// has the error ErrUnsettled. settle itself returns an error only if the context ends: its cause.
func (w *Watcher) settle(ctx context.Context, seen snapshot) (snapshot, error) {
	for range maxReads - 1 {
		if err := sleep(ctx, w.options.Settle); err != nil {
			return snapshot{}, err
		}
		next := w.read()
		if next.equal(seen) {
			return next, nil
		}
		seen = next
	}
	return w.unreadable(fmt.Errorf("%w: no two of %d reads in a row agree, %v apart", ErrUnsettled, maxReads, w.options.Settle)), nil
}

// sleep waits for d. If the context ends first, it returns the cause.
func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
