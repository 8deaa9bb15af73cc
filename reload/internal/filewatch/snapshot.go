package filewatch

import (
	"context"
	"crypto/sha256"
	"fmt"
	"time"

	"github.com/weir-go/weir/internal/regularfile"
)

// maxReads is how many reads in a row can disagree. With the default Settle that is ten seconds, in which a large
// file can come over a slow line.
const maxReads = 50

// A snapshot is the result of one read: the content, or why there was none. The zero value equals no other: no
// content has that hash.
type snapshot struct {
	sum     [sha256.Size]byte
	content []byte // not compared
	err     error
}

// equal reports whether two reads agree. A file that is missing twice does.
func (s snapshot) equal(o snapshot) bool {
	return s.sum == o.sum && sameText(s.err, o.err)
}

// withoutContent returns s for later comparisons.
func (s snapshot) withoutContent() snapshot {
	s.content = nil
	return s
}

// read reads the file.
func (w *Watcher) read() snapshot {
	content, err := regularfile.Read(w.options.Path, w.options.MaxSize)
	if err != nil {
		return w.failed(err)
	}
	return snapshot{sum: sha256.Sum256(content), content: content}
}

func (w *Watcher) failed(err error) snapshot {
	return snapshot{err: newReadError(w.options.Path, err)}
}

// settle reads until two reads in a row agree, and returns the last one. If no two of maxReads reads agree, the
// result is that of a file that cannot be read. The error is the cause of the context.
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
	return w.failed(fmt.Errorf("%w: no two of %d reads in a row agree, %v apart", ErrUnsettled, maxReads, w.options.Settle)), nil
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
