package registry

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir/pipeline"
)

// maxWait is how long a change waits for another change that does not end. Without it, a build function that waits
// for a Reload on another goroutine would never return.
const maxWait = 10 * time.Second

// A slot is held by one change at a time, so that a change sees the result of the change before it.
type slot struct {
	taken    chan struct{}
	goid     atomic.Uint64 // the number of the goroutine that has the slot; 0: none
	releases atomic.Uint64 // how often the slot was released
}

// take waits until no other change runs. It gives up when ctx ends, when closed is closed, or when the same change
// has had the slot for maxWait.
func (s *slot) take(ctx context.Context, goid uint64, closed <-chan struct{}) error {
	stuck := time.NewTimer(maxWait)
	defer stuck.Stop()
	for {
		releases := s.releases.Load()
		select {
		case s.taken <- struct{}{}:
			if ctx.Err() != nil { // select can choose this case although ctx has ended
				<-s.taken
				return fmt.Errorf("registry: before reloading: %w", pipeline.ContextError(ctx))
			}
			s.goid.Store(goid)
			return nil
		case <-ctx.Done():
			return fmt.Errorf("registry: before reloading: %w", pipeline.ContextError(ctx))
		case <-closed:
			return ErrClosed
		case <-stuck.C:
			if s.releases.Load() == releases {
				return fmt.Errorf("%w, and has not ended for %v", ErrReloading, maxWait)
			}
			stuck.Reset(maxWait)
		}
	}
}

// release lets the next change run.
func (s *slot) release() {
	s.goid.Store(0)
	s.releases.Add(1)
	<-s.taken
}
