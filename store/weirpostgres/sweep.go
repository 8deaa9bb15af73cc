package weirpostgres

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/weir-go/weir/internal/clock"
	"github.com/weir-go/weir/internal/recovered"
)

const (
	// The next sweep begins after a number of decisions or after an interval, whichever is reached first. Both are between a
	// minimum, if sweeps find many unused rows, and a maximum, if they find few.
	minDecisions = 1000
	maxDecisions = 64 * minDecisions
	minInterval  = 250 * time.Millisecond
	maxInterval  = 10 * time.Second

	manyRows     = minDecisions / 2 // a sweep that deletes so many rows divides the interval by four
	sweepPages   = 128              // of 8 kB, by default: far more than a thousand new keys fill
	sweepTimeout = 10 * time.Second
)

// A sweeper deletes rows that no key needs any more. Decisions start it; it has no timer and no goroutine in between.
type sweeper struct {
	b      *Backend
	on     bool
	left   atomic.Int64 // decisions until the next sweep
	last   atomic.Int64 // when the last sweep was
	every  atomic.Int64 // ns; the interval between sweeps, if decisions are rare
	ctx    context.Context
	cancel context.CancelFunc

	mu      sync.Mutex // guards closed and busy, and starting a sweep
	closed  bool
	running sync.WaitGroup
	busy    bool

	// For the sweep that is under way, or the goroutine that starts the next one:
	page  int64 // where to continue
	after int64 // decisions between two sweeps
}

func (s *sweeper) init(b *Backend, on bool) {
	s.b, s.on = b, on
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.page, s.after = -1, minDecisions
	s.every.Store(int64(maxInterval))
	s.restart()
}

// decided counts decisions, and starts a sweep if one is due.
func (s *sweeper) decided(n int) {
	if !s.on {
		return
	}
	if s.left.Add(int64(-n)) > 0 && int64(clock.Now())-s.last.Load() < s.every.Load() {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || s.busy {
		return
	}
	s.busy = true
	s.restart()
	s.running.Go(func() {
		defer func() { // deferred, because a hook that calls runtime.Goexit must not end sweeping
			s.restart()
			s.mu.Lock()
			s.busy = false
			s.mu.Unlock()
		}()
		// An error is ignored: the next sweep tries again, and calls report that the server is away.
		recovered.Call(poolHooks, func() { _ = s.sweep(s.ctx) })
	})
}

func (s *sweeper) restart() {
	s.left.Store(s.after)
	s.last.Store(int64(clock.Now()))
}

// sweep sweeps the next range of pages. Instances start at random pages, so that they do not follow each other.
func (s *sweeper) sweep(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, sweepTimeout)
	defer cancel()
	if s.page < 0 {
		if _, pages, err := s.b.sweepRange(ctx, 0, 0); err == nil && pages > 0 {
			s.page = rand.Int64N(pages)
		}
	}
	deleted, pages, err := s.b.sweepRange(ctx, max(s.page, 0), sweepPages)
	if deleted*10 < s.after {
		s.after = min(2*s.after, maxDecisions)
	} else {
		s.after = max(s.after/2, minDecisions)
	}
	if every := time.Duration(s.every.Load()); deleted >= manyRows {
		s.every.Store(int64(max(every/4, minInterval)))
	} else {
		s.every.Store(int64(min(2*every, maxInterval)))
	}
	if s.page = max(s.page, 0) + sweepPages; s.page >= pages {
		s.page = 0
	}
	return err
}

// sweepRange sweeps count pages from the page first on. It returns how many rows were deleted and how many pages there
// are.
func (b *Backend) sweepRange(ctx context.Context, first, count int64) (deleted, pages int64, err error) {
	err = b.query(ctx, "sweep", b.sql.sweep, []any{first, count}, 1, func(_ int, rows pgx.Rows) error {
		var n []int64
		if err := rows.Scan(&n); err != nil {
			return err
		}
		if len(n) != 2 {
			return errAnswer
		}
		deleted, pages = n[0], n[1]
		return nil
	})
	return deleted, pages, err
}

// close ends the sweep that is under way, waits for it, and prevents others.
func (s *sweeper) close() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.cancel()
	s.running.Wait()
}
