package filewatch

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync/atomic"
	"time"
)

// A Watcher calls Load with the content of a file whenever it has changed. Make
// it with New. Most callers call Reload once, for the first load, and leave the
// rest to Run. It is safe for concurrent use.
type Watcher struct {
	options Options
	running atomic.Bool
	problem atomic.Pointer[error] // the last that Problem was told, or would have been

	// turn has room for one: who reads and loads. A mutex could not be waited for
	// with a context.
	turn chan struct{}
	// What follows belongs to whose turn it is.
	last    sight // that settled last, without its content
	inForce sight // that was loaded last, without its content
	retry   retry // of last, if it was refused
}

// New makes a Watcher, and reads nothing yet.
func New(o *Options) (*Watcher, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	w := &Watcher{options: o.withDefaults(), turn: make(chan struct{}, 1)}
	if !filepath.IsAbs(o.Path) { // an absolute one is left alone: Abs cleans it, which may lead elsewhere where there are links
		path, err := filepath.Abs(o.Path)
		if err != nil {
			return nil, fmt.Errorf("reload: no absolute path for %s: %w", o.Path, err)
		}
		w.options.Path = path
	}
	return w, nil
}

// Problem returns what is wrong at the moment: why the file cannot be read, or
// why its content was refused. nil: what the file says is in force, or nobody
// has looked yet.
func (w *Watcher) Problem() error {
	if p := w.problem.Load(); p != nil {
		return *p
	}
	return nil
}

// Run watches until the context ends, and returns its cause. It polls at once,
// and then at every Interval. It starts no goroutine; when it has returned,
// nothing is left of it. Reload goes on working.
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
			_ = w.Reload(ctx) // Problem is told
		}
	}
}

// Reload reads the file now and loads it, even if it has not changed or was
// refused before. It returns nil if the content is in force, Load's error, a
// [ReadError], or the context's cause. As everywhere two reads must agree, so it
// takes at least as long as Settle. It needs no Run.
func (w *Watcher) Reload(ctx context.Context) error {
	if err := w.begin(ctx); err != nil {
		return err
	}
	defer w.end()
	seen, err := w.settle(ctx, w.look())
	if err != nil {
		return err
	}
	if seen.err != nil {
		w.conclude(seen, seen.err, asked)
		return seen.err
	}
	return w.offer(ctx, seen, asked)
}

// poll looks whether there is something to do.
func (w *Watcher) poll(ctx context.Context) {
	if w.begin(ctx) != nil {
		return
	}
	defer w.end()
	seen := w.look()
	if seen.alike(w.last) {
		if w.retry.due() {
			_ = w.offer(ctx, seen, unasked)
		}
		return
	}
	seen, err := w.settle(ctx, seen)
	if err != nil {
		return
	}
	w.take(ctx, seen)
}

// take does what there is to do about what a poll saw when it had settled.
func (w *Watcher) take(ctx context.Context, seen sight) {
	switch {
	case seen.alike(w.last): // back to it before it had settled
	case seen.err != nil:
		w.conclude(seen, seen.err, unasked)
	case seen.alike(w.inForce): // back to it after something that went wrong
		w.conclude(seen, nil, unasked)
	default:
		_ = w.offer(ctx, seen, unasked)
	}
}

// offer loads what was seen. It concludes also if Load leaves the goroutine: the next
// look, on another goroutine, would load the same at once again, and again.
func (w *Watcher) offer(ctx context.Context, seen sight, by occasion) (err error) {
	err = errLeft
	defer func() {
		if _, panicked := errors.AsType[*PanicError](err); panicked || errors.Is(err, errLeft) {
			w.inForce = sight{} // what Load has put in force is not known: going back to that content needs a load
		}
		switch {
		case err == nil:
			w.inForce = seen.withoutContent()
		case ctx.Err() != nil:
			return // it was interrupted, which says nothing about the content
		}
		w.conclude(seen, err, by)
	}()
	err = w.load(ctx, seen.content)
	return err
}

// An occasion is whether somebody is waiting for the answer.
type occasion bool

const (
	unasked occasion = false
	asked   occasion = true
)

// conclude keeps what came of the last sight, and tells it if it is news.
func (w *Watcher) conclude(seen sight, problem error, by occasion) {
	again := by == unasked && seen.alike(w.last)
	w.last = seen.withoutContent()
	switch {
	case seen.err != nil: // every poll tries that again
		w.retry = retry{}
	case again:
		w.retry = w.retry.after(problem)
	default:
		w.retry = retry{}.after(problem)
	}
	news := !sameText(problem, w.Problem()) || by == asked && problem != nil
	w.problem.Store(&problem)
	if news && w.options.Problem != nil {
		w.options.Problem(problem)
	}
}

// begin waits for its turn to read and load; end gives it on.
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
