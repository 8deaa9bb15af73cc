package reload

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir/internal/goroutine"
	"github.com/weir-go/weir/internal/recovered"
	"github.com/weir-go/weir/internal/validate"
	"github.com/weir-go/weir/registry"
	"github.com/weir-go/weir/reload/internal/filewatch"
)

// Options say how [Start] watches a file. The zero Options are the defaults.
type Options struct {
	// Kinds are what the file can name besides weir's own.
	Kinds *Kinds
	// Interval is the time between two looks at the file; 0 is 2 s. With -1 only
	// [Watcher.Reload], and SIGHUP if Hangup is set, read it again.
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
	// Require names pipelines that the program needs. A file without one of them is
	// refused like an invalid one, so that calls do not fail when a pipeline is renamed
	// in the file and not in the program. If empty, a file can leave out any pipeline;
	// leaving out one that the program uses is logged as a warning.
	Require []string
	// Hangup reports whether SIGHUP reads the file again, on systems that have it,
	// instead of ending the process. If false, the signal is not handled here, and by
	// Go's default it ends the process.
	Hangup bool
	// IgnoreHangup does nothing.
	//
	// Deprecated: SIGHUP is left alone unless Hangup is set.
	IgnoreHangup bool
	// Logger gets a line for each version of the file that came into force or was
	// refused, but for the first one if [Start] returns the error; nil is
	// slog.Default(). A handler that panics is recovered.
	Logger *slog.Logger
	// Reporter is told of each attempt to load, in turn. Telemetry is one.
	Reporter Reporter
}

// A Reporter is told that a version of the file came into force, with a nil error,
// or why it did not. If it panics, that is logged and the load goes on. The file is not
// looked at again before the Reporter has returned. If it calls [Watcher.Reload], that
// returns an error; if it calls [Watcher.Stop], that does not wait for it.
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
	inForce  *File // belongs to the load, one at a time
	// unsure are the names of the pipelines that are this Watcher's if it is not known which file is in force;
	// then the next file is put in force as a whole. If nil, inForce is in force. It belongs to the load.
	unsure   map[string]bool
	starting bool // the first load runs, whose error Start returns

	loading  atomic.Uint64 // the goroutine that loads; 0: none
	watching atomic.Uint64 // the goroutine that watches

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
	if err := w.options.validate(r); err != nil {
		return nil, err
	}
	if before := w.options.After; before != nil {
		w.inForce, w.unsure = before.inForce, before.unsure
	}
	hangup, stopHangup := w.hangup()
	if err := w.begin(ctx, hangup); err != nil {
		stopHangup()
		return nil, err
	}
	running, cancel := context.WithCancel(context.WithoutCancel(ctx))
	w.cancel = cancel
	go w.run(running, stopHangup)
	return w, nil
}

// run watches until ctx ends. If a function of the program leaves the goroutine,
// another one goes on.
func (w *Watcher) run(ctx context.Context, stopHangup func()) {
	defer func() {
		if ctx.Err() == nil {
			go w.run(ctx, stopHangup)
			return
		}
		stopHangup()
		close(w.done)
	}()
	w.watching.Store(goroutine.ID())
	for ctx.Err() == nil {
		recovered.Call("reload: watching the file", func() { _ = w.file.Run(ctx) }) // ends with the context
	}
}

// validate returns what is wrong with the options of a Watcher of r.
func (o *Options) validate(r *registry.Registry) error {
	var p validate.Problems
	if i := slices.Index(o.Require, ""); i >= 0 {
		p.Add(fmt.Sprintf("Require[%d]", i), nil, "must not be empty")
	}
	if o.After != nil {
		switch {
		case o.After.registry != r:
			p.Add("After", nil, "must be a Watcher of the same registry")
		case !o.After.stopped():
			p.Add("After", nil, "must be a Watcher that was stopped")
		}
	}
	return p.Err("reload")
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
	w.starting = true
	err = w.file.Reload(ctx)
	w.starting = false
	if missing, ok := errors.AsType[*filewatch.ReadError](err); ok && missing.Missing() && w.options.AllowMissing {
		w.log(ctx, slog.LevelWarn, "the configuration is missing, nothing of it is in force", "file", w.path)
		return nil
	}
	return err
}

func (w *Watcher) hangup() (<-chan os.Signal, func()) {
	if !w.options.Hangup {
		return nil, func() {}
	}
	return filewatch.NotifyHangup()
}

// Stop ends the watching and waits until nothing of it is left. What is in force
// stays; the registry is not closed. It may be called again. See [Options.After]
// for how another Watcher goes on with the same pipelines.
//
// A function that runs while the file is loaded, such as a build function, can call
// Stop: there it does not wait.
func (w *Watcher) Stop() {
	w.cancel()
	if goroutine.ID() != w.watching.Load() {
		<-w.done
	}
}

// Reload reads the file now and puts it in force, unless it is in force already. It
// returns what is wrong with the file. It works after Stop, too, and takes at least [Options.Settle].
//
// A function that runs while the file is loaded, such as a build function, gets
// [registry.ErrReloading]. If it waits for a Reload that it has started on another
// goroutine, both wait until that Reload's ctx ends, so give that a deadline.
func (w *Watcher) Reload(ctx context.Context) error {
	if here := goroutine.ID(); here != 0 && w.loading.Load() == here {
		return fmt.Errorf("reload: %s: %w on this goroutine, which would wait for itself", w.path, registry.ErrReloading)
	}
	return w.file.Reload(ctx)
}

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
	w.loading.Store(goroutine.ID())
	defer w.loading.Store(0)
	f, err := Parse(w.path, content, w.options.Kinds)
	if err == nil {
		err = f.require(w.options.Require)
	}
	if err != nil {
		return w.loaded(nil, filewatch.Permanent(err))
	}
	c := w.change(f)
	if err := w.checkOwner(c); err != nil {
		return w.loaded(nil, err)
	}
	c.Remove = slices.DeleteFunc(c.Remove, func(name string) bool { return !w.registry.Defined(name) })
	lost := slices.DeleteFunc(slices.Clone(c.Remove), func(name string) bool { return !w.registry.InUse(name) })
	if err := w.apply(ctx, f, c); err != nil {
		if ctx.Err() != nil {
			return err // the caller has left: that says nothing about the file
		}
		return w.loaded(nil, err)
	}
	w.log(ctx, slog.LevelInfo, "configuration loaded",
		"file", w.path, "pipelines", len(f.pipelines), "built", len(c.Define), "removed", len(c.Remove))
	if len(lost) > 0 {
		w.log(ctx, slog.LevelWarn, "configuration no longer has pipelines that the program uses: their executions fail. "+
			"If that is not meant, put them back; reload.Options.Require refuses such a file", "file", w.path, "pipelines", listed(lost))
	}
	return w.loaded(f, nil)
}

// change returns what has to be done for the registry to have what f describes.
func (w *Watcher) change(f *File) registry.Change {
	if w.unsure == nil {
		return f.Change(w.inForce)
	}
	c := f.Change(nil)
	for name := range w.owned() {
		if c.Define[name] == nil {
			c.Remove = append(c.Remove, name)
		}
	}
	slices.Sort(c.Remove)
	return c
}

// apply puts f in force. If Apply does not return, because a function of the program has left the goroutine or
// panicked, f may be in force or not: a Listener is told after the change, a build function runs before it.
func (w *Watcher) apply(ctx context.Context, f *File, c registry.Change) error {
	returned := false
	defer func() {
		if returned {
			return
		}
		w.unsure = w.owned()
		for name := range c.Define {
			if w.registry.Defined(name) {
				w.unsure[name] = true
			}
		}
	}()
	err := w.registry.Apply(ctx, c)
	returned = true
	if err == nil {
		w.inForce, w.unsure = f, nil
	}
	return err
}

// owned returns the names of the pipelines that a file has put in force.
func (w *Watcher) owned() map[string]bool {
	switch {
	case w.unsure != nil:
		return w.unsure
	case w.inForce != nil:
		return setOf(w.inForce.Pipelines())
	default:
		return map[string]bool{}
	}
}

// require returns an error if the file does not have one of those pipelines.
func (f *File) require(names []string) error {
	known := setOf(f.Pipelines())
	d := &decoder{}
	for _, name := range names {
		if !known[name] {
			d.add(f.pipelinesAt, pipelinesField, "the program requires the pipeline %s, which is not there; %s",
				shortened(name), d.instead(name, f.Pipelines(), "there is none"))
		}
	}
	return newFileError(f.name, d.problems)
}

// listed is the beginning of a list of names that may be long.
func listed(names []string) []string {
	if len(names) <= mostListed {
		return names
	}
	return append(slices.Clone(names[:mostListed]), fmt.Sprintf("and %d others", len(names)-mostListed))
}

// log writes a line. A handler is the program's: the load does not depend on it.
func (w *Watcher) log(ctx context.Context, level slog.Level, message string, args ...any) {
	recovered.Call("reload: Logger", func() { w.options.Logger.Log(ctx, level, message, args...) })
}

// checkOwner keeps the file from taking over what the program has defined itself.
func (w *Watcher) checkOwner(c registry.Change) error {
	before := w.owned()
	var taken []string
	for name := range c.Define {
		if !before[name] && w.registry.Defined(name) {
			taken = append(taken, name)
		}
	}
	slices.Sort(taken)
	var errs []error
	for _, name := range taken[:min(len(taken), mostListed)] {
		errs = append(errs, fmt.Errorf("reload: %s: pipeline %q is defined elsewhere already", w.path, name))
	}
	if more := len(taken) - mostListed; more > 0 {
		errs = append(errs, fmt.Errorf("reload: %s: so are %d other pipelines", w.path, more))
	}
	return errors.Join(errs...)
}

// loadError is an error that load has reported, but for the log.
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
	if w.loading.CompareAndSwap(0, goroutine.ID()) { // the Reporter may be called
		defer w.loading.Store(0)
	}
	if err == nil {
		w.asBefore()
		return
	}
	if _, known := errors.AsType[*loadError](err); !known {
		w.note(nil, err)
	}
	if w.starting {
		return // Start returns it
	}
	message := "configuration refused, what was in force stays"
	if w.inForce == nil {
		message = "configuration refused, nothing of it is in force"
	}
	args := []any{"file", w.path, "error", err}
	if panicked, ok := errors.AsType[*registry.PanicError](err); ok {
		args = append(args, "stack", string(panicked.Stack))
	}
	w.log(context.Background(), slog.LevelError, message, args...)
}

// asBefore notes that the file is again what is in force, if it is so without a
// load.
func (w *Watcher) asBefore() {
	w.mu.Lock()
	wrong := w.status.Err != nil
	w.mu.Unlock()
	if wrong {
		w.note(nil, nil)
		w.log(context.Background(), slog.LevelInfo, "configuration as before", "file", w.path)
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
		recovered.Call("reload: Reporter", func() { w.options.Reporter.ConfigReloaded(now, err) })
	}
}
