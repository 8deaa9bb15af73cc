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

	"github.com/weir-go/weir/registry"
	"github.com/weir-go/weir/reload/internal/filewatch"
)

// Options say how [Start] watches a file. The zero Options are the defaults.
type Options struct {
	// Kinds are what the file can name besides weir's own.
	Kinds *Kinds
	// Interval is the time between two looks at the file; 0 is 2 s, -1 is never:
	// then only [Watcher.Reload] and a SIGHUP have it read again.
	Interval time.Duration
	// Settle is the time between the two reads that must agree before a content
	// is taken for one that somebody has finished writing; 0 is 200 ms. The first
	// load takes that long, too.
	Settle time.Duration
	// AllowMissing has Start return without an error if the file is not there yet.
	// Its pipelines are defined as soon as it is.
	AllowMissing bool
	// After is a Watcher of the same registry that was stopped: this one takes over
	// its pipelines, and removes those that its own file does not have. Without it
	// they count as defined elsewhere. The file may be another one.
	After *Watcher
	// IgnoreHangup leaves the signal SIGHUP alone. Without it the signal has the
	// file read again, where there is one.
	IgnoreHangup bool
	// Logger gets a line for each version of the file that came into force or was
	// refused; nil is slog.Default().
	Logger *slog.Logger
	// Reporter is told of each attempt to load, in turn. Telemetry is one.
	Reporter Reporter
}

// A Reporter is told that a version of the file came into force, with a nil error,
// or why it did not. It must not call the [Watcher].
type Reporter interface {
	ConfigReloaded(at time.Time, err error)
}

// A Watcher keeps a registry in step with a file. Make one with [Start]. It is safe
// for concurrent use.
type Watcher struct {
	path     string
	registry *registry.Registry
	options  Options
	file     *filewatch.Watcher
	cancel   context.CancelFunc
	done     chan struct{}
	inForce  *File // belongs to whoever loads, one at a time

	mu     sync.Mutex
	status Status
}

// Status says how the file and the registry stand to each other.
type Status struct {
	Path string
	// Loads and Failures count the attempts to load that ended well and that did
	// not. A file that cannot be read is one failure for as long as that lasts.
	Loads, Failures int
	// LastAttempt and LastLoad are the times of the last attempt and of the last
	// that ended well; zero: there was none.
	LastAttempt, LastLoad time.Time
	// Err is what is wrong now; nil: the file is in force.
	Err error
	// Pipelines are those that the file in force describes, in its order.
	Pipelines []string
}

// Start loads the file at path into r, and watches it from then on: whenever its
// content changes, what that changes is built and put in force, all of it or
// nothing. After any failure the last good content stays in force, and watching
// goes on.
//
//	w, err := reload.Start(ctx, r, "weir.yaml", nil)
//	if err != nil {
//		return err // the file is missing or wrong: err says where
//	}
//	defer w.Stop()
//	orders, err := r.Get("orders")
//
// A change is noticed within [Options.Interval] however it is made: written in
// place, moved there, deleted and written anew, or by a symlink that points
// elsewhere, as Kubernetes does with a ConfigMap. A content that is refused because
// of what stands in it is not tried again before it changes; one that could not be
// built is, after 5 s, then ever more rarely down to once a minute.
//
// The pipelines of the file are its own: one that the program has defined under the
// same name is an error. ctx is for the first load; Stop ends the watching. A nil o
// means the defaults.
func Start(ctx context.Context, r *registry.Registry, path string, o *Options) (*Watcher, error) {
	w := &Watcher{path: path, registry: r, done: make(chan struct{}), status: Status{Path: path}}
	if o != nil {
		w.options = *o
	}
	w.options.Kinds = w.options.Kinds.orOwn()
	if w.options.Logger == nil {
		w.options.Logger = slog.Default()
	}
	if err := w.options.Kinds.err(); err != nil {
		return nil, err
	}
	if err := w.takeOver(w.options.After); err != nil {
		return nil, err
	}
	hangup, stopHangup := w.hangup()
	if err := w.begin(ctx, hangup); err != nil {
		stopHangup()
		return nil, err
	}
	running, cancel := context.WithCancel(context.WithoutCancel(ctx))
	w.cancel = cancel
	go func() {
		defer close(w.done)
		defer stopHangup()
		_ = w.file.Run(running) // ends with the context
	}()
	return w, nil
}

// takeOver begins with what another Watcher has put in force.
func (w *Watcher) takeOver(before *Watcher) error {
	if before == nil {
		return nil
	}
	if before.registry != w.registry {
		return errors.New("reload: Options.After is a Watcher of another registry")
	}
	select {
	case <-before.done:
		w.inForce = before.inForce
		return nil
	default:
		return errors.New("reload: Options.After is a Watcher that was not stopped")
	}
}

// begin loads for the first time.
func (w *Watcher) begin(ctx context.Context, hangup <-chan os.Signal) error {
	var err error
	w.file, err = filewatch.New(&filewatch.Options{
		Path:     w.path,
		Interval: w.options.Interval,
		Settle:   w.options.Settle,
		Load:     w.load,
		Problem:  w.problem,
		Signals:  hangup,
	})
	if err != nil {
		return err
	}
	err = w.file.Reload(ctx)
	if missing, ok := errors.AsType[*filewatch.ReadError](err); ok && missing.Missing() && w.options.AllowMissing {
		return nil
	}
	return err
}

func (w *Watcher) hangup() (<-chan os.Signal, func()) {
	if w.options.IgnoreHangup {
		return nil, func() {}
	}
	return filewatch.NotifyHangup()
}

// Stop ends the watching and waits until nothing of it is left. What is in force
// stays; the registry is not closed. It may be called again. See [Options.After]
// for how another Watcher goes on with the same pipelines.
func (w *Watcher) Stop() {
	w.cancel()
	<-w.done
}

// Reload reads the file now, and puts it in force if it is not. It returns what is
// wrong with it. It works after Stop, too, and takes at least [Options.Settle].
func (w *Watcher) Reload(ctx context.Context) error { return w.file.Reload(ctx) }

// Status returns how things are.
func (w *Watcher) Status() Status {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := w.status
	s.Pipelines = slices.Clone(s.Pipelines)
	return s
}

// load puts a content in force.
func (w *Watcher) load(ctx context.Context, content []byte) error {
	f, err := Parse(w.path, content, w.options.Kinds)
	if err != nil {
		return w.loaded(nil, filewatch.Permanent(err))
	}
	c := f.Change(w.inForce)
	if err := w.checkOwner(c); err != nil {
		return w.loaded(nil, err)
	}
	c.Remove = slices.DeleteFunc(c.Remove, func(name string) bool { return !w.registry.Defined(name) })
	if err := w.registry.Apply(ctx, c); err != nil {
		if ctx.Err() != nil {
			return err // whoever asked has left: that says nothing about the file
		}
		return w.loaded(nil, err)
	}
	w.inForce = f
	w.options.Logger.InfoContext(ctx, "configuration loaded",
		"file", w.path, "pipelines", len(f.pipelines), "built", len(c.Define), "removed", len(c.Remove))
	return w.loaded(f, nil)
}

// checkOwner keeps the file from taking over what the program has defined itself.
func (w *Watcher) checkOwner(c registry.Change) error {
	var before []string
	if w.inForce != nil {
		before = w.inForce.Pipelines()
	}
	var errs []error
	for name := range c.Define {
		if !slices.Contains(before, name) && w.registry.Defined(name) {
			errs = append(errs, fmt.Errorf("reload: %s: pipeline %q is defined elsewhere already", w.path, name))
		}
	}
	slices.SortFunc(errs, func(a, b error) int { return cmp.Compare(a.Error(), b.Error()) })
	return errors.Join(errs...)
}

// loadError is an error that load has told everybody about, but for the log.
type loadError struct{ error }

func (e *loadError) Unwrap() error { return e.error }

// loaded notes how a load ended.
func (w *Watcher) loaded(f *File, err error) error {
	w.note(f, err)
	if err == nil {
		return nil
	}
	return &loadError{err}
}

// problem is told when another thing is wrong than before, or nothing any more.
func (w *Watcher) problem(err error) {
	if err == nil {
		w.recovered()
		return
	}
	if _, known := errors.AsType[*loadError](err); !known {
		w.note(nil, err)
	}
	message := "configuration refused, what was in force stays"
	if w.inForce == nil {
		message = "configuration refused, nothing of it is in force"
	}
	args := []any{"file", w.path, "error", err}
	if panicked, ok := errors.AsType[*registry.PanicError](err); ok {
		args = append(args, "stack", string(panicked.Stack))
	}
	w.options.Logger.Error(message, args...)
}

// recovered notes that the file is again what is in force, if it is so without a
// load.
func (w *Watcher) recovered() {
	w.mu.Lock()
	wrong := w.status.Err != nil
	w.mu.Unlock()
	if wrong {
		w.note(nil, nil)
		w.options.Logger.Info("configuration as before", "file", w.path)
	}
}

// note keeps the status, and reports.
func (w *Watcher) note(f *File, err error) {
	now := time.Now()
	w.mu.Lock()
	w.status.LastAttempt, w.status.Err = now, err
	if err == nil {
		w.status.Loads++
		w.status.LastLoad = now
	} else {
		w.status.Failures++
	}
	if f != nil {
		w.status.Pipelines = f.Pipelines()
	}
	w.mu.Unlock()
	if w.options.Reporter != nil {
		w.options.Reporter.ConfigReloaded(now, err)
	}
}
