package reload

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/weir-go/weir/internal/recovered"
	"github.com/weir-go/weir/registry"
	"github.com/weir-go/weir/reload/internal/filewatch"
)

// A Watcher keeps a registry in step with a file. Make one with [Start]. It is safe for concurrent use.
type Watcher struct {
	path     string
	registry *registry.Registry
	options  Options
	file     *filewatch.Watcher
	cancel   context.CancelFunc
	done     chan struct{}

	// The following fields are used by one load at a time.
	inForce  *File           // nil: none
	owned    map[string]bool // the names of the pipelines that belong to this Watcher; nil: no file was ever in force
	starting bool            // during the first load, whose error Start returns

	mu     sync.Mutex
	status Status
}

// Status is the state of a [Watcher].
type Status struct {
	Path string
	// Loads and Failures are the numbers of attempts to load that have succeeded and failed. If several reads in a row
	// fail for the same reason, they count as one failure.
	Loads, Failures int
	// LastAttempt and LastLoad are the times of the last attempt and of the last one that succeeded. The zero time
	// means that there was none.
	LastAttempt, LastLoad time.Time
	// Err is what is wrong with the file. If nil, the file is in force.
	Err error
	// Pipelines are the names of the pipelines of the file in force, in its order, and then those of its sections.
	Pipelines []string
}

// Start loads the file at path into r and watches it on a goroutine of its own. Whenever the content changes, it builds
// the pipelines that have changed and puts all of them in force together. After any failure the last good content stays
// in force, and watching goes on until [Watcher.Stop].
//
//	w, err := reload.Start(ctx, r, "weir.yaml", nil)
//	if err != nil {
//		return err // the file is missing or wrong: err says where
//	}
//	defer w.Stop()
//	orders, err := r.Get("orders")
//
// A change is noticed within [Options.Interval], however it is made: the file is written in place, replaced, deleted
// and written again, or a symbolic link leads elsewhere, as with a Kubernetes ConfigMap. If the file cannot be parsed,
// it is not tried again before its content changes. If its pipelines cannot be built, it is tried again after 5 s, and
// then at growing intervals of up to a minute.
//
// The pipelines of the file belong to the Watcher: if the program has defined one under the same name, the file is
// refused. ctx is only for the first load. If o is nil, the options have their defaults. Wrong options are a
// [weir.OptionsError].
func Start(ctx context.Context, r *registry.Registry, path string, o *Options) (*Watcher, error) {
	w := &Watcher{path: path, registry: r, done: make(chan struct{}), status: Status{Path: path}}
	if o != nil {
		w.options = *o
	}
	w.options.Kinds = w.options.Kinds.orOwn()
	if w.options.Logger == nil {
		w.options.Logger = slog.Default()
	}
	if err := w.options.Kinds.wrong.Err("reload"); err != nil {
		return nil, err
	}
	if err := w.options.validate(r, path); err != nil {
		return nil, err
	}
	if before := w.options.After; before != nil {
		w.inForce, w.owned = before.inForce, before.owned
	}
	var hangup <-chan os.Signal
	stopHangup := func() {}
	if w.options.Hangup {
		hangup, stopHangup = filewatch.NotifyHangup()
	}
	if err := w.begin(ctx, hangup); err != nil {
		stopHangup()
		return nil, err
	}
	running, cancel := context.WithCancel(context.WithoutCancel(ctx))
	w.cancel = cancel
	go w.run(running, stopHangup)
	return w, nil
}

// run watches until ctx ends, also after a panic of a function of the program.
func (w *Watcher) run(ctx context.Context, stopHangup func()) {
	for ctx.Err() == nil {
		recovered.Hook("reload: watching the file", func() { _ = w.file.Run(ctx) }) // ends with the context
	}
	stopHangup()
	close(w.done)
}

// stopped reports whether w no longer watches.
func (w *Watcher) stopped() bool {
	select {
	case <-w.done:
		return true
	default:
		return false
	}
}

// begin makes the file watcher and loads for the first time.
func (w *Watcher) begin(ctx context.Context, hangup <-chan os.Signal) error {
	var err error
	w.file, err = filewatch.New(filewatch.Options{
		Path:     w.path,
		Read:     w.options.Read,
		Interval: cmp.Or(w.options.Interval, defaultInterval),
		Settle:   cmp.Or(w.options.Settle, defaultSettle),
		Load:     w.load,
		Ended:    w.ended,
		Signals:  hangup,
	})
	if err != nil {
		return err
	}
	w.starting = true
	err = w.file.Reload(ctx)
	w.starting = false
	if missing, ok := errors.AsType[*filewatch.ReadError](err); ok && missing.Missing() && w.options.AllowMissing {
		w.log(ctx, slog.LevelWarn, "the configuration is missing, nothing of it is in force", "file", w.path)
		return nil
	}
	return err
}

// Stop ends the watching and waits until the Watcher's goroutine has ended. What is in force stays, and the registry
// stays open. Stop can be called again. See [Options.After] for a Watcher that continues with the same pipelines.
//
// A function that runs while the file is loaded, such as a build function, must not wait for Stop, which waits for it.
func (w *Watcher) Stop() {
	w.cancel()
	<-w.done
}

// Reload reads the file now and puts it in force, unless it is in force already. It returns what is wrong with the
// file, which must be complete: it is read once. It works after Stop, too.
//
// A function that runs while the file is loaded must not wait for Reload, which waits for it. With
// [registry.Builder.Context] or the context of an event of the registry, Reload returns [registry.ErrReloading]; with another
// one, it waits until that ends.
func (w *Watcher) Reload(ctx context.Context) error {
	if ctx.Value(loading{w}) != nil {
		return fmt.Errorf("reload: %s: %w, and waits for the function that has called this one", w.path, registry.ErrReloading)
	}
	return w.file.Reload(ctx)
}

// Status returns the current state.
func (w *Watcher) Status() Status {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := w.status
	s.Pipelines = slices.Clone(s.Pipelines)
	return s
}
