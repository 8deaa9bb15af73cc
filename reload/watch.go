package reload

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/weir-go/weir/internal/recovered"
	"github.com/weir-go/weir/internal/validate"
	"github.com/weir-go/weir/registry"
	"github.com/weir-go/weir/reload/internal/document"
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
	inForce  *File // its pipelines belong to this Watcher; nil: no file was ever in force
	starting bool  // during the first load, whose error Start returns

	mu     sync.Mutex
	status Status
}

// Status is the state of a [Watcher].
type Status struct {
	Path string
	// Loads and Failures are the numbers of attempts to load that have succeeded and failed. If the file cannot be read or is
	// wrong, that counts once, until it changes. A build that fails is tried again every 10 s, and counts each time.
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
// it is not tried again before its content changes. If its pipelines cannot be built, it is tried again every
// 10 s.
//
// The pipelines of the file belong to the Watcher: if the program has defined one under the same name, the file is
// refused. ctx is only for the first load. If o is nil, the defaults apply. Wrong options are a
// [weir.OptionsError].
func Start(ctx context.Context, r *registry.Registry, path string, o *Options) (*Watcher, error) {
	w := &Watcher{path: path, registry: r, done: make(chan struct{}), status: Status{Path: path}}
	if o != nil {
		w.options = *o
	}
	w.options.Kinds = cmp.Or(w.options.Kinds, ownKinds)
	if w.options.Logger == nil {
		w.options.Logger = slog.Default()
	}
	if err := w.options.Kinds.wrong.Err("reload"); err != nil {
		return nil, err
	}
	var p validate.Problems
	if path == "" {
		p.Add("Path", nil, "must be set")
	}
	p.Include("", w.options.Validate())
	if err := p.Err("reload"); err != nil {
		return nil, err
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
	go func() {
		defer close(w.done)
		defer stopHangup()
		_ = w.file.Run(running) // ends with the context
	}()
	return w, nil
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
// stays open. Stop can be called again.
//
// A function that runs while the file is loaded, such as a build function or the Reporter, must not call Stop, which would
// wait for it.
func (w *Watcher) Stop() {
	w.cancel()
	<-w.done
}

// Reload reads the file now and puts it in force, unless it is in force already. It returns what is wrong with the
// file, which must be complete: it is read once. It works after Stop, too.
//
// A function that runs while the file is loaded must not call Reload, which waits for the end of the load, or of ctx.
func (w *Watcher) Reload(ctx context.Context) error { return w.file.Reload(ctx) }

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
	f, err := Parse(w.path, content, w.options.Kinds)
	if err == nil {
		err = f.require(w.options.Require)
	}
	if err == nil {
		err = f.checkFixed(w.inForce)
	}
	if err != nil {
		return filewatch.Permanent(err)
	}
	c := f.Change(w.inForce)
	c.Remove = slices.DeleteFunc(c.Remove, func(name string) bool { return !w.registry.Defined(name) })
	if err := w.checkOwner(c); err != nil {
		return err
	}
	lost := slices.DeleteFunc(slices.Clone(c.Remove), func(name string) bool { return !w.registry.InUse(name) })
	if err := w.apply(ctx, f, c); err != nil {
		return err
	}
	w.log(ctx, slog.LevelInfo, "configuration loaded",
		"file", w.path, "pipelines", len(f.defined()), "built", len(c.Define), "removed", len(c.Remove))
	if len(lost) > 0 {
		w.log(ctx, slog.LevelWarn, "configuration no longer has pipelines that the program uses: their executions fail. "+
			"If that is not meant, put them back; reload.Options.Require refuses such a file", "file", w.path, "pipelines", document.Listed(lost))
	}
	w.logOverrides(ctx)
	return nil
}

// logOverrides writes a line for each limiter whose limits are not those of the configuration.
func (w *Watcher) logOverrides(ctx context.Context) {
	for name, l := range w.registry.Limiters() {
		if o := l.Override; o != nil {
			w.log(ctx, slog.LevelWarn, "a limiter is overridden, its configured limits come into force at the end",
				"file", w.path, "limiter", name, "until", o.Until, "by", o.By, "reason", o.Reason)
		}
	}
}

// apply puts f in force.
func (w *Watcher) apply(ctx context.Context, f *File, c registry.Change) error {
	if err := w.registry.Apply(ctx, c); err != nil {
		return err
	}
	w.inForce = f
	w.mu.Lock()
	w.status.Pipelines = f.defined()
	w.mu.Unlock()
	if w.options.InForce != nil {
		recovered.Call("reload: InForce", func() { w.options.InForce(f) })
	}
	return nil
}

// require returns an error if the file lacks one of the pipelines with these names.
func (f *File) require(names []string) error {
	var found document.Problems
	has := f.defined()
	for _, name := range names {
		if !slices.Contains(has, name) {
			found.Add(f.content.PipelinesAt, "the program requires the pipeline %s, which is not there; %s",
				document.Quoted(name), document.Instead(name, has, "there is none"))
		}
	}
	return newFileError(f.name, found)
}

// checkOwner refuses to redefine a pipeline that the program has defined.
func (w *Watcher) checkOwner(c registry.Change) error {
	taken := slices.DeleteFunc(slices.Sorted(maps.Keys(c.Define)), func(name string) bool { return !w.registry.Defined(name) })
	if w.inForce != nil {
		own := slices.Sorted(slices.Values(w.inForce.defined()))
		taken = slices.DeleteFunc(taken, func(name string) bool { _, is := slices.BinarySearch(own, name); return is })
	}
	if len(taken) == 0 {
		return nil
	}
	return fmt.Errorf("reload: %s: pipelines of the file are defined elsewhere already: %s", w.path, strings.Join(document.Listed(taken), ", "))
}

// ended updates the status, calls the Reporter, and logs what load has not logged.
func (w *Watcher) ended(r filewatch.Result) {
	now := time.Now()
	w.mu.Lock()
	w.status.LastAttempt, w.status.Err = now, r.Err
	if r.Err == nil {
		w.status.Loads++
		w.status.LastLoad = now
	} else {
		w.status.Failures++
	}
	w.mu.Unlock()
	if w.options.Reporter != nil {
		recovered.Hook("reload: Reporter", func() { w.options.Reporter.ConfigReloaded(now, r.Err) })
	}
	switch {
	case !r.Log, w.starting: // Start returns the error
	case r.Err != nil:
		w.logRefused(r.Err)
	case !r.Loaded:
		w.log(context.Background(), slog.LevelInfo, "configuration unchanged", "file", w.path)
	}
}

func (w *Watcher) logRefused(err error) {
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

// log writes a line. If the handler of the program panics, the load goes on.
func (w *Watcher) log(ctx context.Context, level slog.Level, message string, args ...any) {
	recovered.Hook("reload: Logger", func() { w.options.Logger.Log(ctx, level, message, args...) })
}

const (
	defaultInterval = 2 * time.Second
	defaultSettle   = 200 * time.Millisecond
	// minInterval is the smallest Interval and Settle. It refuses numbers that lack a unit: 2 is 2 ns.
	minInterval = time.Millisecond
)

// Options are the options of [Start]. The zero value has the defaults.
type Options struct {
	// Kinds are the kinds and functions of the program that the file can name. If nil, there are weir's own kinds and
	// no functions.
	Kinds *Kinds
	// Interval is the time between two looks at the file; 0 means 2 s. If it is -1, the file is only read again by
	// [Watcher.Reload], and by SIGHUP if Hangup is set.
	Interval time.Duration
	// Settle is the time between two reads that must agree before a change is loaded, so that a file that is being written is
	// not loaded; 0 means 200 ms. The first load, [Watcher.Reload] and
	// SIGHUP load the file at once.
	Settle time.Duration
	// Read returns the content to load, in place of that of the file at path, which then is only a name in messages and in
	// [Status]. It is for content that is made of several files, or of files in another format. Read is called for each
	// look, from one goroutine at a time, and must return the same content as long as nothing has changed. Its error keeps
	// what is in force, as wrong content does; a [*FileError] says where in the files the reason is. A panic is recovered
	// and becomes an error. If nil, the file at path is read.
	Read func() ([]byte, error)
	// AllowMissing reports whether Start succeeds if the file does not exist. Its pipelines are defined as soon as it
	// exists. If false, Start returns an error.
	AllowMissing bool
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
	// InForce is called with each file that has come into force, right after its pipelines, also with the first one
	// before [Start] returns. It is for what sections say that is not in a pipeline, such as the level of a log:
	// [SectionOf] has it. Calls do not overlap. If it panics, the panic is logged and the load goes on. If nil, nothing
	// is called.
	InForce func(f *File)
	// Reporter is told of each attempt to load; package telemetry has one. If nil, attempts are not reported.
	Reporter Reporter
}

// A Reporter is told of each attempt to load, one at a time.
type Reporter interface {
	// ConfigReloaded is called after each attempt. err is nil if the file came into force, and otherwise the reason why
	// it did not. The next attempt begins after ConfigReloaded has returned, so it must not call [Watcher.Reload] or
	// [Watcher.Stop]. If ConfigReloaded panics, the panic is logged and the load goes on.
	ConfigReloaded(at time.Time, err error)
}

// Validate returns a [weir.OptionsError] with everything that is wrong with o, or nil. [Start] calls it.
func (o *Options) Validate() error {
	if o == nil {
		return nil
	}
	var p validate.Problems
	if o.Interval != 0 && o.Interval != -1 && o.Interval < minInterval {
		p.Add("Interval", o.Interval, "must be at least %v, 0 for %v, or -1 for none", minInterval, defaultInterval)
	}
	if o.Settle != 0 && o.Settle < minInterval {
		p.Add("Settle", o.Settle, "must be at least %v, or 0 for %v", minInterval, defaultSettle)
	}
	if i := slices.Index(o.Require, ""); i >= 0 {
		p.Add(fmt.Sprintf("Require[%d]", i), nil, "must not be empty")
	}
	return p.Err("reload")
}
