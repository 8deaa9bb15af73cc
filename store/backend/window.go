package backend

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir/rate"
)

// Lines returns the schedule by which to decide the batch, whose lines are at equal distances: that of the definition or, of a
// calendar, the window that has At. In a store the lines of a calendar have the same numbers for all instances, also if their time
// zone databases disagree on when a line is. The first instance that decides by a line begins it: see [rate.Schedule.AdvanceTo].
func (b *Batch) Lines() (lines rate.Schedule, line int64) {
	line = b.Definition.LineAt(b.At)
	return b.Definition.Window(line), line
}

// Windowed returns b with a Decide that knows at which window of a calendar the store is: it sets Batch.At to its own time, and
// sends batches with the outcome OtherWindow again, with the store's time.
func Windowed(b Backend) Backend { return &windowed{Backend: b} }

type windowed struct {
	Backend
	ahead atomic.Int64 // µs by which the clock of the store was ahead at last
}

// maxWindows is how often a batch is sent with another window: once, unless the window ends, or the clock is set, at the same time.
const maxWindows = 4

var errWindows = errors.New("the clock of the store is in another window each time")

func (w *windowed) Decide(ctx context.Context, batches []*Batch) error {
	now := time.Now().UnixMicro() + w.ahead.Load()
	for _, b := range batches {
		b.At = now
	}
	if err := w.Backend.Decide(ctx, batches); err != nil {
		return err
	}
	isElsewhere := func(b *Batch) bool { return b.Outcome == OtherWindow }
	for sent := 1; ; sent++ {
		if !slices.ContainsFunc(batches, isElsewhere) {
			return nil
		}
		batches = slices.DeleteFunc(slices.Clone(batches), func(b *Batch) bool { return !isElsewhere(b) })
		w.ahead.Store(batches[0].Now - time.Now().UnixMicro())
		outcome, err := Failed, errWindows
		if sent < maxWindows {
			for _, b := range batches {
				b.At = b.Now
			}
			outcome, err = Unreachable, w.Backend.Decide(ctx, batches)
		}
		if err != nil { // not returned: the other batches have their answers
			for _, b := range batches {
				b.Outcome, b.Err = outcome, err
			}
			return nil
		}
	}
}
