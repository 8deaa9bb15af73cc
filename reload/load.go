package reload

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/weir-go/weir/internal/recovered"
	"github.com/weir-go/weir/registry"
	"github.com/weir-go/weir/reload/internal/document"
	"github.com/weir-go/weir/reload/internal/filewatch"
)

// load puts the content in force. It runs on one goroutine at a time.
func (w *Watcher) load(ctx context.Context, content []byte) error {
	ctx = context.WithValue(ctx, loading{w}, true)
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
	c := w.change(f)
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

// change returns the change from the pipelines that belong to w to those of f.
func (w *Watcher) change(f *File) registry.Change {
	c := f.Change(w.inForce)
	gone := maps.Clone(w.owned)
	for _, name := range f.defined() {
		delete(gone, name)
	}
	maps.DeleteFunc(gone, func(name string, _ bool) bool { return !w.registry.Defined(name) })
	c.Remove = slices.Sorted(maps.Keys(gone))
	return c
}

// apply puts f in force.
func (w *Watcher) apply(ctx context.Context, f *File, c registry.Change) error {
	if err := w.registry.Apply(ctx, c); err != nil {
		return err
	}
	w.inForce, w.owned = f, make(map[string]bool)
	for _, name := range f.defined() {
		w.owned[name] = true
	}
	w.mu.Lock()
	w.status.Pipelines = f.defined()
	w.mu.Unlock()
	if w.options.InForce != nil {
		recovered.Hook("reload: InForce", func() { w.options.InForce(f) })
	}
	return nil
}

// loading is the key of the value in the contexts of functions that run while the Watcher loads.
type loading struct{ watcher *Watcher }

// require returns an error if the file lacks one of the pipelines with these names.
func (f *File) require(names []string) error {
	var found document.Problems
	var suggester document.Suggester
	has := f.defined()
	for _, name := range names {
		if !slices.Contains(has, name) {
			found.AddAt(f.content.PipelinesAt, "the program requires the pipeline %s, which is not there; %s",
				document.Quoted(name), suggester.Instead(name, has, "there is none"))
		}
	}
	return newFileError(f.name, found)
}

// checkOwner refuses to redefine a pipeline that the program has defined.
func (w *Watcher) checkOwner(c registry.Change) error {
	var taken []string
	for name := range c.Define {
		if !w.owned[name] && w.registry.Defined(name) {
			taken = append(taken, name)
		}
	}
	slices.Sort(taken)
	var errs []error
	for _, name := range taken[:min(len(taken), document.MaxListed)] {
		errs = append(errs, fmt.Errorf("reload: %s: pipeline %q is defined elsewhere already", w.path, name))
	}
	if more := len(taken) - document.MaxListed; more > 0 {
		errs = append(errs, fmt.Errorf("reload: %s: %d other pipelines are defined elsewhere, too", w.path, more))
	}
	return errors.Join(errs...)
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
	if w.owned == nil {
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
