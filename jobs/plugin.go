package jobs

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/riverqueue/river"
	"github.com/riverqueue/river/rivertype"
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
	if other := sessionOf(ctx); other != nil && other.job.ID == job.ID {
		if other.throttler == p.throttler { // the client has the plugin twice
			return work(ctx)
		}
		return invalid(errors.New("the River client has plugins of two Throttlers, and a job is throttled by one"))
	}
	s := &session{throttler: p.throttler, job: job}
	if p.throttler != nil {
		s.declared = p.throttler.throttles.Load().of(job.Kind)
	}
	for d, _ := ctx.Value(pendingKey{}).(*pendingDeclaration); d != nil; d = d.earlier {
		s.declare(d.parsed)
	}
	ctx, s.cancel = context.WithCancelCause(ctx)
	defer s.cancel(nil)
	defer s.end()
	err := work(context.WithValue(ctx, sessionKey{}, s))
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
	if s == nil || s.throttler != p.throttler || s.begun {
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
	parsed     *parsedThrottle
	middleware []rivertype.WorkerMiddleware
	plugins    []rivertype.Plugin
}

// Declare checks a throttle. Keep what it returns in a variable, and give it to a worker with [Throttled], or to a type of
// arguments with [Declaration.Plugins]. One Declaration may be used by many kinds of jobs. Jobs whose client has no plugin
// of a [Throttler] fail with [ErrNotInstalled].
func Declare(t Throttle) (*Declaration, error) {
	p, err := t.parse()
	if err != nil {
		return nil, err
	}
	d := &Declaration{parsed: p}
	d.middleware, d.plugins = []rivertype.WorkerMiddleware{&pendingDeclaration{parsed: p}}, []rivertype.Plugin{d}
	return d, nil
}

// Plugins returns the declaration for the method Plugins of a type of arguments. All its jobs are throttled, whatever
// worker they have:
//
//	func (SendArgs) Plugins() []rivertype.Plugin { return sendLimits.Plugins() }
func (d *Declaration) Plugins() []rivertype.Plugin { return d.plugins }

// Work is called by River, for the type of arguments.
func (d *Declaration) Work(ctx context.Context, _ *rivertype.JobRow, work func(context.Context) error) error {
	if s := sessionOf(ctx); s != nil { // else WorkBegin says that there is none
		s.declare(d.parsed)
	}
	return work(ctx)
}

// WorkBegin is called by River, for the type of arguments, after that of the Throttler's plugin.
func (d *Declaration) WorkBegin(ctx context.Context, job *rivertype.JobRow) error {
	return installed(ctx, job)
}

// installed returns an error if no plugin has asked whether the job may start.
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
	if own := w.Worker.Middleware(job); len(own) > 0 {
		return append(slices.Clip(own), w.declaration.middleware...)
	}
	return w.declaration.middleware
}

func (w *throttledWorker[T]) Work(ctx context.Context, job *river.Job[T]) error {
	if err := installed(ctx, job.JobRow); err != nil {
		return err
	}
	return w.Worker.Work(ctx, job)
}

// A pendingDeclaration hands the declaration of a worker to the plugin in the context, because River enters the
// middleware of workers before that of the client.
type pendingDeclaration struct {
	river.MiddlewareDefaults
	parsed  *parsedThrottle
	earlier *pendingDeclaration
}

type pendingKey struct{}

func (p *pendingDeclaration) Work(ctx context.Context, _ *rivertype.JobRow, work func(context.Context) error) error {
	earlier, _ := ctx.Value(pendingKey{}).(*pendingDeclaration)
	return work(context.WithValue(ctx, pendingKey{}, &pendingDeclaration{parsed: p.parsed, earlier: earlier}))
}
