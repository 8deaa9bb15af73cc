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
	"github.com/weir-go/weir/reload/internal/document"
	"github.com/weir-go/weir/reload/internal/filewatch"
	"github.com/weir-go/weir/reload/internal/model"
)

// Options are the options of [Start]. The zero value has the defaults.
type Options struct {
	// Kinds are the kinds and functions of the program that the file can name. If nil, there are weir's own kinds and
	// no functions.
	Kinds *Kinds
	// Interval is the time between two looks at the file; 0 means 2 s. If it is -1, the file is only read again by
	// [Watcher.Reload], and by SIGHUP if Hangup is set.
	Interval time.Duration
	// Settle is the time between two reads that must agree before their content is loaded, so that a file that is
	// being written is not loaded; 0 means 200 ms. The first load takes that long, too.
	Settle time.Duration
	// AllowMissing reports whether Start succeeds if the file does not exist. Its pipelines are defined as soon as it
	// exists. If false, Start returns an error.
	AllowMissing bool
	// After is a Watcher of the same registry that was stopped. The new Watcher takes over its pipelines, and removes
	// the pipelines that its own file does not have. The file can be another one. If nil, pipelines of an earlier Watcher
	// count as defined by the program, and a file with one of them is refused.
	After *Watcher
	// Require names pipelines that the program needs. A file without one of them is refused like an invalid one, so
	// that calls do not fail when a pipeline is renamed in the file and not in the program. If empty, a file can
	// leave out any pipeline; leaving out one that the program uses is logged as a warning.
	Require []string
	// Hangup reports whether SIGHUP reads the file again, on systems that have this signal, instead of ending the
	// process. If false, the signal is not handled here, and by Go's default it ends the process.
	Hangup bool
	// Logger gets a line for each version of the file that came into force or was refused, except a refused first
	// one, whose error [Start] returns. If nil, it is [slog.Default]. If its handler panics, the panic is recovered
	// and the load goes on.
	Logger *slog.Logger
	// Reporter is told of each attempt to load; package telemetry has one. If nil, attempts are not reported.
	Reporter Reporter
}

// A Reporter is told of each attempt to load, one at a time: err is nil if the file came into force, and otherwise
// the reason why it did not. The file is not looked at again before ConfigReloaded has returned. If it panics, the
// panic is logged and the load goes on. If it calls [Watcher.Reload], that returns an error; if it calls
// [Watcher.Stop], that does not wait for it.
type Reporter interface {
	ConfigReloaded(at time.Time, err error)
}

// A Watcher keeps a registry in step with a file. Make one with [Start]. It is safe for concurrent use.
type Watcher struct {
	path     string
	registry *registry.Registry
	options  Options
	file     *filewatch.Watcher
	cancel   context.CancelFunc
	done     chan struct{}
	inForce  *File // used by the load only, one at a time
	// unsure are the names of the pipelines of this Watcher if it is not known which file is in force; then the next
	// file is put in force as a whole. If nil, inForce is in force. Used by the load only.
	unsure   map[string]bool
	starting bool // during the first load, whose error Start returns

	loading  atomic.Uint64 // the goroutine that loads; 0: none
	watching atomic.Uint64 // the goroutine that watches

	mu     sync.Mutex
	status Status
}

// Status is the state of a [Watcher].
type Status struct {
	Path string
	// Loads and Failures are the numbers of attempts to load that have succeeded and failed. As long as a file cannot
	// be read for the same reason, that is one failure.
	Loads, Failures int
	// LastAttempt and LastLoad are the times of the last attempt and of the last one that succeeded. The zero time
	// means that there was none.
	LastAttempt, LastLoad time.Time
	// Err is what is wrong with the file. If nil, the file is in force.
	Err error
	// Pipelines are the names of the pipelines of the file in force, in its order.
	Pipelines []string
}

// Start loads the file at path into r and watches it: whenever the content changes, Start's goroutine builds what the
// change concerns and puts it in force, all of it or nothing. After any failure the last good content stays in force,
// and watching goes on until [Watcher.Stop].
//
//	w, err := reload.Start(ctx, r, "weir.yaml", nil)
//	if err != nil {
//		return err // the file is missing or wrong: err says where
//	}
//	defer w.Stop()
//	orders, err := r.Get("orders")
//
// A change is noticed within [Options.Interval], however it is made: the file is written in place, replaced, deleted
// and written again, or a symbolic link leads elsewhere, as with a Kubernetes ConfigMap. If the file cannot be
// parsed, it is not tried again before its content changes. If it cannot be built, it is tried again after 5 s, and
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

// run watches until ctx ends. If a function of the program calls [runtime.Goexit], another goroutine goes on.
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

// begin makes the file watcher and loads for the first time.
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

// hangup returns the channel of SIGHUP, nil if it is not wanted, and the function that ends it.
func (w *Watcher) hangup() (<-chan os.Signal, func()) {
	if !w.options.Hangup {
		return nil, func() {}
	}
	return filewatch.NotifyHangup()
}

// Stop ends the watching and waits until the Watcher's goroutine has ended. What is in force stays, and the registry
// stays open. Stop can be called again. See [Options.After] for a Watcher that continues with the same pipelines.
//
// If a function that runs while the file is loaded, such as a build function, calls Stop, it does not wait.
func (w *Watcher) Stop() {
	w.cancel()
	if goroutine.ID() != w.watching.Load() {
		<-w.done
	}
}

// Reload reads the file now and puts it in force, unless it is in force already. It returns what is wrong with the
// file. It works after Stop, too. It takes at least [Options.Settle].
//
// If a function that runs while the file is loaded, such as a build function, calls Reload, it returns
// [registry.ErrReloading]. If that function waits for a Reload on another goroutine, both wait until the ctx of that
// Reload ends, so give it a deadline.
func (w *Watcher) Reload(ctx context.Context) error {
	if here := goroutine.ID(); here != 0 && w.loading.Load() == here {
		return fmt.Errorf("reload: %s: %w on this goroutine, which would wait for itself", w.path, registry.ErrReloading)
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

// load puts the content in force. It runs on one goroutine at a time.
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
			return err // the caller has given up, which says nothing about the file
		}
		return w.loaded(nil, err)
	}
	w.log(ctx, slog.LevelInfo, "configuration loaded",
		"file", w.path, "pipelines", len(f.has.Pipelines), "built", len(c.Define), "removed", len(c.Remove))
	if len(lost) > 0 {
		w.log(ctx, slog.LevelWarn, "configuration no longer has pipelines that the program uses: their executions fail. "+
			"If that is not meant, put them back; reload.Options.Require refuses such a file", "file", w.path, "pipelines", document.Listed(lost))
	}
	return w.loaded(f, nil)
}

// change returns the change that gives the registry what f describes.
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

// apply puts f in force. If Apply does not return, because a function of the program has panicked or called
// [runtime.Goexit], f may be in force or not: build functions run before the change, the Listener after it.
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

// owned returns the names of the pipelines that belong to this Watcher.
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

// require returns an error if the file lacks one of those pipelines.
func (f *File) require(names []string) error {
	known := setOf(f.Pipelines())
	d := &decoder{}
	for _, name := range names {
		if !known[name] {
			d.Add(f.pipelinesAt, model.PipelinesField, "the program requires the pipeline %s, which is not there; %s",
				document.Quoted(name), d.Instead(name, f.Pipelines(), "there is none"))
		}
	}
	return newFileError(f.name, d.Problems)
}

// log writes a line. If the handler of the program panics, the load goes on.
func (w *Watcher) log(ctx context.Context, level slog.Level, message string, args ...any) {
	recovered.Call("reload: Logger", func() { w.options.Logger.Log(ctx, level, message, args...) })
}

// checkOwner refuses to redefine a pipeline that the program has defined.
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
	for _, name := range taken[:min(len(taken), document.MostListed)] {
		errs = append(errs, fmt.Errorf("reload: %s: pipeline %q is defined elsewhere already", w.path, name))
	}
	if more := len(taken) - document.MostListed; more > 0 {
		errs = append(errs, fmt.Errorf("reload: %s: so are %d other pipelines", w.path, more))
	}
	return errors.Join(errs...)
}

// A loadError is an error of load, which has been noted in the status but not logged.
type loadError struct{ error }

func (e *loadError) Unwrap() error { return e.error }

// loaded notes the result of a load.
func (w *Watcher) loaded(f *File, err error) error {
	w.note(f, err)
	if err == nil {
		return nil
	}
	return &loadError{err}
}

// problem is called by the file watcher when the problem is another one than before, or none any more.
func (w *Watcher) problem(err error) {
	if w.loading.CompareAndSwap(0, goroutine.ID()) { // note calls the Reporter
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

// asBefore notes that the file is what is in force again, without a load.
func (w *Watcher) asBefore() {
	w.mu.Lock()
	wrong := w.status.Err != nil
	w.mu.Unlock()
	if wrong {
		w.note(nil, nil)
		w.log(context.Background(), slog.LevelInfo, "configuration as before", "file", w.path)
	}
}

// note updates the status and tells the Reporter.
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
