package filewatch

import (
	"context"
	"crypto/sha256"
	"fmt"
	"time"

	"github.com/weir-go/weir/internal/regularfile"
)

// patience is how many reads in a row may disagree. With the default Settle that
// is ten seconds, in which a large file comes over a slow line.
const patience = 50

// A sight is what one read showed: content, or why there was none. The zero sight,
// of one who has not looked yet, is like no other: no content has that hash.
type sight struct {
	sum     [sha256.Size]byte
	content []byte // not part of the comparison
	err     error
}

// alike tells whether two reads agree. A file that is missing twice does.
func (s sight) alike(o sight) bool {
	return s.sum == o.sum && sameText(s.err, o.err)
}

// withoutContent is what is left to compare with, once nobody needs the content.
func (s sight) withoutContent() sight {
	s.content = nil
	return s
}

// look reads the file.
func (w *Watcher) look() sight {
	content, err := regularfile.Read(w.options.Path, w.options.MaxSize)
	if err != nil {
		return w.failedSight(err)
	}
	return sight{sum: sha256.Sum256(content), content: content}
}

func (w *Watcher) failedSight(err error) sight {
	return sight{err: newReadError(w.options.Path, err)}
}

// settle reads on until two reads in a row agree, and returns the latter. A file
// for which that does not come true is seen as one that cannot be read. The error
// is the context's.
func (w *Watcher) settle(ctx context.Context, seen sight) (sight, error) {
	for range patience - 1 {
		if err := sleep(ctx, w.options.Settle); err != nil {
			return sight{}, err
		}
		next := w.look()
		if next.alike(seen) {
			return next, nil
		}
		seen = next
	}
	return w.failedSight(fmt.Errorf("%w: no two of %d reads in a row agree, %v apart", ErrUnsettled, patience, w.options.Settle)), nil
}

// sleep waits for d and returns nil, or why the context ended meanwhile.
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
