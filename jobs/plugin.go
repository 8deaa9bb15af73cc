package jobs

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/riverqueue/river"
	"github.com/riverqueue/river/rivertype"

	"github.com/weir-go/weir/internal/validate"
)

// Plugin returns the plugin with which a River client throttles its jobs. Add it to the Plugins of the client:
//
//	client, err := river.NewClient(riverpgxv5.New(pool), &river.Config{
//		Plugins: []rivertype.Plugin{throttler.Plugin()},
//		…
//	})
//
// The limits of a job are requested after all middleware has been entered, before its arguments are decoded and its timeout
// begins.
func (t *Throttler) Plugin() rivertype.Plugin { return &plugin{throttler: t} }

// Unthrottled returns a plugin with which jobs run without being throttled, for tests of workers that declare throttles.
// Without any plugin such jobs fail with [ErrNotInstalled].
func Unthrottled() rivertype.Plugin { return &plugin{} }

// A plugin is a middleware that begins and ends the session of a run, and a hook that requests its limits. The hook runs
// after the middleware of workers and arguments, so that it has their declarations and those of the configuration.
type plugin struct {
	river.PluginDefaults
	throttler *Throttler // nil: unthrottled
}

// Work is called by River.
func (p *plugin) Work(ctx context.Context, job *rivertype.JobRow, work func(context.Context) error) error {
	s, ctx := sessionFor(ctx, job)
	if s.plugin != nil {
		return invalid(errors.New("the River client has two plugins of Throttlers, and a job is throttled by one"))
	}
	s.plugin, s.throttler = p, p.throttler
	if p.throttler != nil {
		s.declared = append(s.declared, p.throttler.throttles.Load().of(job.Kind)...)
	}
	ctx, s.cancel = context.WithCancelCause(ctx)
	defer s.cancel(nil)
	defer s.end()
	err := work(ctx)
	if err == nil && !s.begun && len(s.declared) > 0 {
		return fmt.Errorf("%w as a hook: the job has run unthrottled: add throttler.Plugin() to the Plugins of river.Config, not to its Middleware", ErrNotInstalled)
	}
	if lost := context.Cause(ctx); err != nil && errors.Is(lost, ErrLost) && !errors.Is(err, ErrLost) {
		err = fmt.Errorf("%w (%w)", err, lost)
	}
	return err
}

// WorkBegin is called by River.
func (p *plugin) WorkBegin(ctx context.Context, _ *rivertype.JobRow) error {
	s := sessionOf(ctx)
	if s == nil || s.plugin == nil || s.throttler != p.throttler || s.begun {
		return nil
	}
	if s.throttler != nil {
		if err := s.begin(ctx); err != nil {
			return err
		}
	}
	s.begun = true
	return nil
}

// A Declaration is a [Throttle] that has been checked, for a worker or for the type of its arguments.
type Declaration struct {
	river.PluginDefaults
	parsed *parsedThrottle
}

// Declare checks a throttle. Keep what it returns in a variable, and give it to a worker with [Throttled], or to a type of
// arguments with [Declaration.Plugins]. One Declaration may be used by many kinds of jobs. Jobs whose client has no plugin
// of a [Throttler] fail with [ErrNotInstalled].
func Declare(t Throttle) (*Declaration, error) {
	var p validate.Problems
	d := &Declaration{parsed: t.check(&p)}
	if err := p.Err("jobs"); err != nil {
		return nil, err
	}
	return d, nil
}

// Plugins returns the declaration for the method Plugins of a type of arguments. All its jobs are throttled, whatever
// worker they have:
//
//	func (SendArgs) Plugins() []rivertype.Plugin { return sendLimits.Plugins() }
func (d *Declaration) Plugins() []rivertype.Plugin { return []rivertype.Plugin{d} }

// Work is called by River, for a worker or for the type of arguments.
func (d *Declaration) Work(ctx context.Context, job *rivertype.JobRow, work func(context.Context) error) error {
	s, ctx := sessionFor(ctx, job)
	s.declare(d.parsed)
	return work(ctx)
}

// WorkBegin is called by River, for the type of arguments, after that of the Throttler's plugin.
func (d *Declaration) WorkBegin(ctx context.Context, job *rivertype.JobRow) error {
	return installed(ctx, job)
}

// installed returns an error if no plugin of a Throttler has begun the session of the job.
func installed(ctx context.Context, job *rivertype.JobRow) error {
	if s := sessionOf(ctx); s != nil && s.job.ID == job.ID && s.begun {
		return nil
	}
	return fmt.Errorf("%w, and jobs of kind %q are declared to be throttled: add throttler.Plugin() to the Plugins of river.Config, "+
		"not to its Middleware or Hooks", ErrNotInstalled, job.Kind)
}

// Throttled returns a worker whose jobs are throttled:
//
//	river.AddWorker(workers, jobs.Throttled(&SendWorker{}, sendLimits))
func Throttled[T river.JobArgs](worker river.Worker[T], d *Declaration) river.Worker[T] {
	return &throttledWorker[T]{worker, d}
}

type throttledWorker[T river.JobArgs] struct {
	river.Worker[T]
	declaration *Declaration
}

func (w *throttledWorker[T]) Middleware(job *rivertype.JobRow) []rivertype.WorkerMiddleware {
	return append(slices.Clip(w.Worker.Middleware(job)), w.declaration)
}

func (w *throttledWorker[T]) Work(ctx context.Context, job *river.Job[T]) error {
	if err := installed(ctx, job.JobRow); err != nil {
		return err
	}
	return w.Worker.Work(ctx, job)
}
