package filewatch

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/weir-go/weir/internal/recovered"
	"github.com/weir-go/weir/internal/regularfile"
	"github.com/weir-go/weir/registry"
)

// MaxSize is the size of the largest file that is read. A decoder can have a lower bound, with a better error.
const MaxSize = 8 << 20

// Options are the options of a [Watcher]. All are required, except Read and Signals.
type Options struct {
	// Path is the file, or a symbolic link to it. A relative path is relative to the working directory at the time of
	// [New].
	Path string
	// Read returns the content in place of the file at Path, if it is not nil. Its error is that of the Result.
	Read func() ([]byte, error)
	// Interval is the time between two polls. If it is -1, there are no polls: the file is only read by Reload and for
	// a signal, and nothing is tried again.
	Interval time.Duration
	// Settle is the time between the two reads of a poll that must agree.
	Settle time.Duration
	// Load gets new content, which it can keep. If it returns an error or panics, the content is refused, and what
	// was loaded before must still be in force. Load is not called concurrently with itself, and must not call
	// Reload.
	//
	// The context is that of Run or Reload. What Load makes should not depend on it: a caller's context can end as
	// soon as Reload has returned. If the context has ended when Load fails, the content does not count as refused.
	Load func(ctx context.Context, content []byte) error
	// Ended is called with the result of each load and of each read that failed. It is also called when the file has the
	// content in force again after a failure. Like Load, it is not called concurrently, and must not call Reload, nor panic.
	Ended func(Result)
	// Signals makes Run reload the file for every signal that comes from it; usually the channel of [NotifyHangup].
	// If nil, there are none.
	Signals <-chan os.Signal
}

// A Result says how an attempt ended.
type Result struct {
	// Err is a [ReadError], the error of Load, or a [registry.PanicError]. If nil, the content of the file is in force.
	Err error
	// Loaded reports whether Load was called.
	Loaded bool
	// Log reports whether the Result is to be logged: Err has another text than the Err of the last Result, or only one
	// of the two is nil. Errors of Reload and of loads for a signal are always logged.
	Log bool
}

// A Watcher calls Load with the content of a file whenever the content has changed. Make one with New. Most callers
// call Reload once, for the first load, and then Run. It is safe for concurrent use.
type Watcher struct {
	options Options

	// turn is held while the file is read and loaded. It is a channel because waiting for a mutex does not end with a
	// context.
	turn chan struct{}
	// The following fields are used by the holder of turn.
	last      string    // the last snapshot that was handled, by its key
	unsettled string    // of the last poll, if it was neither that nor handled
	inForce   string    // the last snapshot that was loaded
	problem   error     // of the last Result
	retryAt   time.Time // when last is tried again, if it was refused; zero: never
}

// New returns a Watcher. It does not read the file.
func New(o Options) (*Watcher, error) {
	w := &Watcher{options: o, turn: make(chan struct{}, 1)}
	if !filepath.IsAbs(o.Path) { // Abs would clean an absolute path, and link/../file can be another file than file
		path, err := filepath.Abs(o.Path)
		if err != nil {
			return nil, fmt.Errorf("reload: no absolute path for %s: %w", o.Path, err)
		}
		w.options.Path = path
	}
	return w, nil
}

// Run watches until the context ends, and returns the context's cause. It polls at once, and then at every Interval,
// on the calling goroutine. It must not be called while it runs. Reload still works afterwards.
func (w *Watcher) Run(ctx context.Context) error {
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
			timer.Reset(w.poll(ctx))
		case _, open := <-signals:
			if !open {
				signals = nil
				continue
			}
			_ = w.Reload(ctx) // Ended gets the error
		}
	}
}

// Reload reads the file now and loads it, even if it has not changed or was refused before. It returns nil if the
// content is in force, and otherwise Load's error, a [ReadError], or the context's cause. It reads the file once: the caller
// knows that it is complete. It does not need Run.
func (w *Watcher) Reload(ctx context.Context) error {
	if err := w.takeTurn(ctx); err != nil {
		return err
	}
	defer w.endTurn()
	return w.handle(ctx, w.read(), true)
}

// poll reads the file, and returns the time until the next poll. If the content has changed and the poll before has read the same,
// or if it is to be tried again, poll handles it.
func (w *Watcher) poll(ctx context.Context) (next time.Duration) {
	if w.takeTurn(ctx) != nil {
		return w.options.Interval
	}
	defer w.endTurn()
	seen := w.read()
	switch {
	case seen.key == w.last:
		if !w.retryAt.IsZero() && !time.Now().Before(w.retryAt) {
			_ = w.handle(ctx, seen, false)
		}
	case seen.key != w.unsettled:
		w.unsettled = seen.key
		return w.options.Settle
	case seen.key == w.inForce: // it has changed back after a failure
		w.conclude(seen, Result{}, false)
	default:
		_ = w.handle(ctx, seen, false)
	}
	w.unsettled = ""
	return w.options.Interval
}

// handle loads the content if it could be read. requested reports whether a caller or a signal has asked for it.
func (w *Watcher) handle(ctx context.Context, seen snapshot, requested bool) error {
	if seen.err != nil {
		w.conclude(seen, Result{Err: seen.err}, requested)
		return seen.err
	}
	err := guarded("loading the file", func() error { return w.options.Load(ctx, seen.content) })
	if err == nil {
		w.inForce = seen.key
	}
	if err == nil || ctx.Err() == nil { // otherwise Load was interrupted, which says nothing about the content
		w.conclude(seen, Result{Err: err, Loaded: true}, requested)
	}
	return err
}

// guarded calls a function of the program. The error of a panic is a [registry.PanicError].
func guarded(what string, f func() error) error {
	err := recovered.Error(f)
	if p, ok := err.(*registry.PanicError); ok { //nolint:errorlint // not one that f has returned
		return fmt.Errorf("reload: %s: %w", what, p)
	}
	return err
}

// retryInterval is the time after which refused content is tried again.
const retryInterval = 10 * time.Second

// conclude records the result for seen and calls Ended.
func (w *Watcher) conclude(seen snapshot, r Result, requested bool) {
	w.last, w.retryAt = seen.key, time.Time{}
	_, permanent := errors.AsType[*permanentError](r.Err)
	if r.Loaded && r.Err != nil && !permanent {
		w.retryAt = time.Now().Add(retryInterval)
	}
	r.Log = fmt.Sprint(r.Err) != fmt.Sprint(w.problem) || requested && r.Err != nil
	w.problem = r.Err
	w.options.Ended(r)
}

func (w *Watcher) takeTurn(ctx context.Context) error {
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

func (w *Watcher) endTurn() { <-w.turn }

// Permanent wraps an error of [Options.Load] that the same content would cause again, such as a syntax error. Only
// Reload and a signal try the same content again. The text of the error stays the same.
func Permanent(err error) error { return &permanentError{err} }

type permanentError struct{ error }

func (e *permanentError) Unwrap() error { return e.error }

// A ReadError means that the file could not be read, so that there was nothing to load.
type ReadError struct {
	Path string
	Err  error // of the operating system or package regularfile
}

func (e *ReadError) Error() string {
	return fmt.Sprintf("reload: cannot read %s: %v", e.Path, e.Err)
}

func (e *ReadError) Unwrap() error { return e.Err }

// Missing reports whether there is no file, or the link to it leads nowhere.
func (e *ReadError) Missing() bool { return errors.Is(e.Err, fs.ErrNotExist) }

// A snapshot is the result of one read: the content, or why there was none.
type snapshot struct {
	key     string // of two reads that agree the same: of the same content, or with the same text of the error
	content []byte
	err     error
}

// read reads the file. From an error of the operating system, it removes the path and the name of the system call, so
// that a problem has the same text whether it was found when the file was opened or when it was read.
func (w *Watcher) read() snapshot {
	var content []byte
	err := guarded("Read", func() (err error) {
		if w.options.Read != nil {
			content, err = w.options.Read()
			return err
		}
		content, err = regularfile.Read(w.options.Path, MaxSize)
		if of, ok := errors.AsType[*fs.PathError](err); ok {
			err = of.Err
		}
		if err != nil {
			return &ReadError{Path: w.options.Path, Err: err}
		}
		return nil
	})
	if err != nil {
		return snapshot{key: "error: " + err.Error(), err: err}
	}
	return snapshot{key: fmt.Sprintf("content: %x", sha256.Sum256(content)), content: content}
}
