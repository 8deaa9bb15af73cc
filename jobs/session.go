package jobs

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/riverqueue/river"
	"github.com/riverqueue/river/rivertype"
)

// A session is one run of a job, from its first middleware to the last.
type session struct {
	plugin    *plugin    // nil: the run has not come to it yet
	throttler *Throttler // of the plugin
	job       *rivertype.JobRow
	declared  []*parsedThrottle
	minDelay  time.Duration
	cancel    context.CancelCauseFunc
	begun     bool // the hook has let the job start
	granted   decision
	held      *release // nil: nothing to release
	renewed   time.Time
}

type sessionKey struct{}

func sessionOf(ctx context.Context) *session {
	s, _ := ctx.Value(sessionKey{}).(*session)
	return s
}

// sessionFor returns the session of a run of the job, and a context with it.
func sessionFor(ctx context.Context, job *rivertype.JobRow) (*session, context.Context) {
	if s := sessionOf(ctx); s != nil && s.job.ID == job.ID {
		return s, ctx
	}
	s := &session{job: job}
	return s, context.WithValue(ctx, sessionKey{}, s)
}

// declare adds a declaration, unless the session has it. River enters the middleware of a worker before the plugin, and that of the
// type of arguments after it, which has precedence.
func (s *session) declare(p *parsedThrottle) {
	switch {
	case slices.Contains(s.declared, p):
	case s.plugin == nil:
		s.declared = append(s.declared, p)
	default:
		s.declared = append([]*parsedThrottle{p}, s.declared...)
	}
}

// begin requests the limits of a job. It returns nil if the job may start, and otherwise the error that its run ends with.
func (s *session) begin(ctx context.Context) error {
	t := s.throttler
	req, err := t.newRequest(s)
	if err != nil {
		return s.fail(err)
	}
	if len(req.needs) == 0 {
		return nil
	}
	result, err := t.batcher.decide(ctx, req)
	switch {
	case errors.Is(err, ErrUnknownLimiter), errors.Is(err, ErrForeignJob):
		return s.fail(err)
	case err != nil && ctx.Err() != nil: // the client stops, or the job was cancelled, which River records itself
		return &rivertype.JobSnoozeError{}
	case err != nil: // the database cannot be reached, or the Throttler was closed
		return &rivertype.JobSnoozeError{Duration: max(s.minDelay, time.Second+rand.N(time.Second))}
	}
	t.adjustLead(result.late)
	if result.granted {
		s.grant(ctx, req, result)
	}
	s.reportDecision(ctx, req, result)
	if result.granted {
		return nil
	}
	return s.refuse(ctx, result.limiter, time.UnixMicro(result.wake), req.snoozes)
}

// fail reports that a job fails because it cannot be throttled.
func (s *session) fail(err error) error {
	s.throttler.events.Add(Event{Kind: EventJobFailed, Job: s.job.ID, JobKind: s.job.Kind, Err: err})
	return err
}

// metadataKey is the key in a job's metadata under which a throttled job has its limiter and the time when it comes back.
const metadataKey = "weir"

// refuse returns the error that snoozes a throttled job, or cancels it.
func (s *session) refuse(ctx context.Context, limiter Ref, next time.Time, snoozes bool) error {
	if !snoozes {
		_ = river.MetadataSet(ctx, metadataKey, map[string]any{"throttled_by": limiter}) // only fails outside of River
		return river.JobCancel(&ThrottledError{Limiter: limiter, Next: next})
	}
	_ = river.MetadataSet(ctx, metadataKey, map[string]any{"throttled_by": limiter, "until": next.UTC()})
	// River adds the duration to this machine's clock, and for 5 s and less compares the sum with the database's. So the
	// duration contains the difference between the clocks, and may be negative. For more than 5 s, River's leader compares
	// the sum with its own clock; if that is behind, lookAfterWaiters does it.
	return &rivertype.JobSnoozeError{Duration: next.Sub(s.throttler.now())}
}

// reportDecision calls the functions of OnDecision.
func (s *session) reportDecision(ctx context.Context, req *request, result decision) {
	s.throttler.mu.Lock()
	functions := s.throttler.onDecision
	s.throttler.mu.Unlock()
	if len(functions) == 0 {
		return
	}
	d := Decision{Job: s.job.ID, JobKind: s.job.Kind, Limiter: result.limiter}
	if result.granted {
		d.Waited = time.Duration(result.waited) * time.Microsecond
		for _, n := range req.needs {
			d.Granted = append(d.Granted, n.ref)
		}
	} else {
		d.Next, d.Cancelled = time.UnixMicro(result.wake), !req.snoozes
	}
	for _, f := range functions {
		f(ctx, d)
	}
}

// grant records what the run holds.
func (s *session) grant(ctx context.Context, req *request, result decision) {
	s.granted = result
	if bytes.Contains(s.job.Metadata, []byte(`"`+metadataKey+`"`)) {
		_ = river.MetadataSet(ctx, metadataKey, nil)
	}
	if result.heldRows == 0 {
		return
	}
	t, r := s.throttler, req.newRelease(result)
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
	} else { // strict: the row of the job shows when it is finalized
		t.batcher.recheckLater(s.held.contended, recordDelay)
	}
}

// Fence returns the number with which the run of a job was granted, from the context that its Work gets. For each key
// of a mutex, it is greater than the numbers of all runs before. Write it beside what the job writes elsewhere, and
// refuse writes with a smaller number than the last: then a run that was taken for dead and goes on does no harm. Do
// not do this where several jobs hold slots at the same time, of a semaphore or as one owner: they write with smaller
// numbers, too. ok is false if the job needed no slots.
func Fence(ctx context.Context) (fence int64, ok bool) {
	s := sessionOf(ctx)
	if s == nil || !s.granted.fenced {
		return 0, false
	}
	return s.granted.fence, true
}
