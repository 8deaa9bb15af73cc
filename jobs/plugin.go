package jobs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/riverqueue/river"
	"github.com/riverqueue/river/rivertype"
)

// Plugin returns what makes a River client throttle its jobs. It belongs into the client's Plugins:
//
//	client, err := river.NewClient(riverpgxv5.New(pool), &river.Config{
//		Plugins: []rivertype.Plugin{throttler.Plugin()},
//		…
//	})
//
// A job asks after all middleware has been entered and before its arguments are decoded and its timeout begins.
func (t *Throttler) Plugin() rivertype.Plugin { return &plugin{throttler: t} }

// Unthrottled returns a plugin with which jobs run without being throttled, for tests of workers that declare throttles.
// Without any plugin such jobs fail with [ErrNotInstalled].
func Unthrottled() rivertype.Plugin { return &plugin{} }

// A plugin is a middleware that begins and ends a job's session, and a hook that asks for the job. The hook runs after
// the middleware of workers and arguments, so that their declarations and the configuration's count together.
type plugin struct {
	river.PluginDefaults
	throttler *Throttler // nil: unthrottled
}

// A session is one run of a job, from its first middleware to the last.
type session struct {
	throttler *Throttler
	job       *rivertype.JobRow
	declared  []*parsedThrottle
	minDelay  time.Duration
	cancel    context.CancelCauseFunc
	begun     bool // the job may start
	granted   decision
	held      *release // nil: nothing to release
	renewed   time.Time
}

type sessionKey struct{}

func sessionOf(ctx context.Context) *session {
	s, _ := ctx.Value(sessionKey{}).(*session)
	return s
}

// Work is called by River.
func (p *plugin) Work(ctx context.Context, job *rivertype.JobRow, work func(context.Context) error) error {
	if other := sessionOf(ctx); other != nil && other.job.ID == job.ID {
		if other.throttler == p.throttler { // the client has the plugin twice
			return work(ctx)
		}
		return optionsError(errors.New("the River client has plugins of two Throttlers, and a job is throttled by one"))
	}
	s := &session{throttler: p.throttler, job: job}
	if p.throttler != nil {
		s.declared = p.throttler.rules.Load().of(job.Kind)
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
	if p.throttler != nil {
		if err := p.throttler.begin(ctx, s); err != nil {
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

// pending is a worker's declaration on its way to the plugin: River enters the middleware of workers before that of the
// client.
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

// declare adds a declaration, unless the session has it. Those of a job come before those of a configuration.
func (s *session) declare(p *parsedThrottle) {
	if !slices.Contains(s.declared, p) {
		s.declared = append([]*parsedThrottle{p}, s.declared...)
	}
}

// Fence returns the number that the run of a job was granted with, from the context that its Work gets. For each key of
// a mutex it is greater than that of every run before. Write it beside what the job writes elsewhere, and refuse a write
// with a smaller number than has been seen: then a run that was thought dead and goes on does no harm. Where several jobs
// may hold a slot at the same time, of a semaphore or as one owner, a smaller number is no sign of that. ok is false if
// the job needed no slots.
func Fence(ctx context.Context) (fence int64, ok bool) {
	s := sessionOf(ctx)
	if s == nil || !s.granted.fenced {
		return 0, false
	}
	return s.granted.fence, true
}

// metadataKey is where a job's metadata says why it waits.
const metadataKey = "weir"

func (t *Throttler) throttled(ctx context.Context, s *session, result decision) error {
	next := time.UnixMicro(result.wake)
	why := map[string]any{"throttled_by": result.limiter, "until": next.UTC()}
	_ = river.MetadataSet(ctx, metadataKey, why) // for those who look at the job; it fails outside of River only
	t.events.Add(Event{Kind: EventJobThrottled, Job: s.job.ID, JobKind: s.job.Kind, Limiter: result.limiter, Next: next})
	// River adds the duration to this machine's clock and compares with the database's. So a difference between the two
	// goes into the duration, which may be negative.
	return &rivertype.JobSnoozeError{Duration: next.Sub(t.now())}
}

func (t *Throttler) cancelled(ctx context.Context, s *session, result decision) error {
	next := time.UnixMicro(result.wake)
	_ = river.MetadataSet(ctx, metadataKey, map[string]any{"throttled_by": result.limiter})
	t.events.Add(Event{Kind: EventJobCancelled, Job: s.job.ID, JobKind: s.job.Kind, Limiter: result.limiter, Next: next})
	return river.JobCancel(&ThrottledError{Limiter: result.limiter, Next: next})
}

// grant notes what the run holds.
func (s *session) grant(ctx context.Context, t *Throttler, result decision) {
	s.granted = result
	if bytes.Contains(s.job.Metadata, []byte(`"`+metadataKey+`"`)) { // why it has waited
		_ = river.MetadataSet(ctx, metadataKey, nil)
	}
	if result.heldRows == 0 {
		return
	}
	r := release{run: runID{s.job.ID, s.job.AttemptedAt.UnixMicro()}, attempted: *s.job.AttemptedAt, contended: result.contended}
	t.mu.Lock()
	defer t.mu.Unlock()
	s.held, s.renewed = &r, time.Now()
	t.sessions[s] = true
}

// end releases what the run holds.
func (s *session) end() {
	if s.held == nil {
		return
	}
	t := s.throttler
	t.mu.Lock()
	delete(t.sessions, s)
	t.mu.Unlock()
	if s.granted.leased {
		t.batcher.release(*s.held)
	} else { // the job's row shows when it ends
		t.batcher.recheckLater(s.held.contended, recordDelay)
	}
}
