package filewatch

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync/atomic"
	"time"
)

// A Watcher calls Load with the content of a file whenever the content has changed. Make one with New. Most callers
// call Reload once, for the first load, and then Run. It is safe for concurrent use.
type Watcher struct {
	options Options
	running atomic.Bool
	problem atomic.Pointer[error] // the last one that was or would have been reported

	// turn is held while the file is read and loaded. It is a channel because waiting for a mutex does not end with a
	// context.
	turn chan struct{}
	// The following fields are used by the holder of turn.
	last    snapshot // the last one that two reads have agreed about, without its content
	inForce snapshot // the last one that was loaded, without its content
	retry   retry    // for last, if it was refused
}

// New returns a Watcher. It does not read the file.
func New(o *Options) (*Watcher, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	w := &Watcher{options: o.withDefaults(), turn: make(chan struct{}, 1)}
	if !filepath.IsAbs(o.Path) { // Abs would clean an absolute one, which leads elsewhere if there are links
		path, err := filepath.Abs(o.Path)
		if err != nil {
			return nil, fmt.Errorf("reload: no absolute path for %s: %w", o.Path, err)
		}
		w.options.Path = path
	}
	return w, nil
}

// Problem returns why the file cannot be read or why its content was refused. It is nil if the content is in force,
// and before the first read.
func (w *Watcher) Problem() error {
	if p := w.problem.Load(); p != nil {
		return *p
	}
	return nil
}

// Run watches until the context ends, and returns the context's cause. It polls at once, and then at every Interval,
// on the calling goroutine. Reload still works afterwards.
func (w *Watcher) Run(ctx context.Context) error {
	if !w.running.CompareAndSwap(false, true) {
		return ErrRunning
	}
	defer w.running.Store(false)

	var due <-chan time.Time
	var timer *time.Timer
	if w.options.Interval > 0 {
		timer = time.NewTimer(0)
		defer timer.Stop()
		due = timer.C
	}
	signals := w.options.Signals
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-due:
			w.poll(ctx)
			timer.Reset(w.options.Interval)
		case _, open := <-signals:
			if !open {
				signals = nil
				continue
			}
			_ = w.Reload(ctx) // reported
		}
	}
}

// Reload reads the file now and loads it, even if it has not changed or was refused before. It returns nil if the
// content is in force, and otherwise Load's error, a [ReadError], or the context's cause. Two reads must agree, so it
// takes at least as long as Settle. It does not need Run.
func (w *Watcher) Reload(ctx context.Context) error {
	if err := w.begin(ctx); err != nil {
		return err
	}
	defer w.end()
	seen, err := w.settle(ctx, w.read())
	if err != nil {
		return err
	}
	if seen.err != nil {
		w.conclude(seen, seen.err, byRequest)
		return seen.err
	}
	return w.offer(ctx, seen, byRequest)
}

// poll reads the file and loads it if it has changed or is to be tried again.
func (w *Watcher) poll(ctx context.Context) {
	if w.begin(ctx) != nil {
		return
	}
	defer w.end()
	seen := w.read()
	if seen.equal(w.last) {
		if w.retry.due() {
			_ = w.offer(ctx, seen, byPoll)
		}
		return
	}
	seen, err := w.settle(ctx, seen)
	if err != nil {
		return
	}
	w.handle(ctx, seen)
}

// handle handles what a poll has read.
func (w *Watcher) handle(ctx context.Context, seen snapshot) {
	switch {
	case seen.equal(w.last): // it has changed and changed back
	case seen.err != nil:
		w.conclude(seen, seen.err, byPoll)
	case seen.equal(w.inForce): // it has changed back after a failure
		w.conclude(seen, nil, byPoll)
	default:
		_ = w.offer(ctx, seen, byPoll)
	}
}

// offer loads the content. It also concludes if Load calls [runtime.Goexit]: the next poll, on another goroutine,
// would load the same content again at once.
func (w *Watcher) offer(ctx context.Context, seen snapshot, by requested) (err error) {
	err = errLoadLeft
	defer func() {
		if _, panicked := errors.AsType[*PanicError](err); panicked || errors.Is(err, errLoadLeft) {
			w.inForce = snapshot{} // it is not known what is in force: the next content is loaded in any case
		}
		switch {
		case err == nil:
			w.inForce = seen.withoutContent()
		case ctx.Err() != nil:
			return // Load was interrupted, which says nothing about the content
		}
		w.conclude(seen, err, by)
	}()
	err = w.load(ctx, seen.content)
	return err
}

// requested is whether a caller has requested the load or a poll has found it necessary.
type requested bool

const (
	byPoll    requested = false
	byRequest requested = true
)

// conclude records the result for seen and reports it, unless a poll finds the same problem again.
func (w *Watcher) conclude(seen snapshot, problem error, by requested) {
	again := by == byPoll && seen.equal(w.last)
	w.last = seen.withoutContent()
	switch {
	case seen.err != nil: // every poll reads again
		w.retry = retry{}
	case again:
		w.retry = w.retry.after(problem)
	default:
		w.retry = retry{}.after(problem)
	}
	news := !sameText(problem, w.Problem()) || by == byRequest && problem != nil
	w.problem.Store(&problem)
	if news && w.options.Problem != nil {
		w.options.Problem(problem)
	}
}

// begin takes turn, and end gives it back.
func (w *Watcher) begin(ctx context.Context) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	select {
	case w.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (w *Watcher) end() { <-w.turn }
