package weirpostgres

import (
	"context"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/weir-go/weir/internal/clock"
	"github.com/weir-go/weir/internal/recovered"
	"github.com/weir-go/weir/store/internal/background"
)

const (
	// The next sweep begins after a number of decisions: minDecisions if sweeps find many unused rows, maxDecisions if they find
	// few. The time without decisions counts as decisions, too, so that maxDecisions last for maxInterval at most.
	minDecisions = 1000
	maxDecisions = 64 * minDecisions
	maxInterval  = 10 * time.Second

	manyRows     = minDecisions / 2 // a sweep that deletes so many rows divides the number of decisions by four
	sweepPages   = 128              // of 8 kB, by default: far more than a thousand new keys fill
	sweepTimeout = 10 * time.Second
)

// A sweeper deletes rows that no key needs any more. Decisions start it; it has no timer and no goroutine in between.
type sweeper struct {
	db     *database
	on     bool
	left   atomic.Int64 // decisions until the next sweep
	last   atomic.Int64 // when the last sweep was
	sweeps *background.Group
	busy   atomic.Bool

	// For the goroutine that has set busy, and the sweep that it starts:
	page  int64 // where to continue
	after int64 // decisions between two sweeps
}

func (s *sweeper) init(db *database, on bool) {
	s.db, s.on, s.sweeps = db, on, background.New()
	s.page, s.after = -1, minDecisions
	s.restart()
}

// decided counts decisions, and starts a sweep if one is due.
func (s *sweeper) decided(n int) {
	if !s.on {
		return
	}
	idle := (int64(clock.Now()) - s.last.Load()) / int64(maxInterval/maxDecisions)
	if s.left.Add(int64(-n)) > idle || !s.busy.CompareAndSwap(false, true) {
		return
	}
	s.restart()
	s.sweeps.Go(func() {
		defer func() { // deferred, because a hook that calls runtime.Goexit must not end sweeping
			s.restart()
			s.busy.Store(false)
		}()
		// An error is ignored: the next sweep tries again, and calls report that the server is away.
		recovered.Call(poolHooks, func() { _ = s.sweep(s.sweeps.Context()) })
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
		if _, pages, err := s.sweepRange(ctx, 0, 0); err == nil && pages > 0 {
			s.page = rand.Int64N(pages)
		}
	}
	deleted, pages, err := s.sweepRange(ctx, max(s.page, 0), sweepPages)
	if deleted >= manyRows {
		s.after = max(s.after/4, minDecisions)
	} else {
		s.after = min(2*s.after, maxDecisions)
	}
	if s.page = max(s.page, 0) + sweepPages; s.page >= pages {
		s.page = 0
	}
	return err
}

// sweepRange sweeps count pages from the page first on. It returns how many rows were deleted and how many pages there
// are.
func (s *sweeper) sweepRange(ctx context.Context, first, count int64) (deleted, pages int64, err error) {
	err = s.db.query(ctx, "sweep", s.db.sql.sweep, []any{first, count}, 1, func(_ int, rows pgx.Rows) error {
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
