package jobs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/rivertype"

	"github.com/weir-go/weir/internal/eventqueue"
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

// declare adds a declaration, unless the session has it.
func (s *session) declare(p *parsedThrottle) {
	if !slices.Contains(s.declared, p) {
		s.declared = append(s.declared, p)
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
		if s.throttledBefore() { // it may still wait for limits that it no longer has
			if result, err := t.batcher.decide(ctx, req); err == nil {
				s.grant(ctx, req, result)
			}
		}
		return nil
	}
	result, err := t.batcher.decide(ctx, req)
	switch {
	case errors.Is(err, ErrUnknownLimiter), errors.Is(err, ErrForeignJob):
		return s.fail(err)
	case err != nil && ctx.Err() != nil: // the client stops, or the job was cancelled, which River records itself
		return &rivertype.JobSnoozeError{}
	case errors.Is(err, errUnreadable): // a newer program can run the job
		_ = s.fail(err)
		return snooze()
	case err != nil: // the database cannot be reached, or the Throttler was closed
		return snooze()
	case result.leased && time.Since(result.written) >= t.leases.length*3/4: // it may end before the first renewal
		t.batcher.release(req.unused(result))
		return snooze()
	}
	if result.granted {
		s.grant(ctx, req, result)
	}
	s.reportDecision(ctx, req, result)
	if result.granted {
		return nil
	}
	return s.refuse(ctx, result.limiter, time.UnixMicro(result.wake), req.snoozes)
}

// snooze returns the error that snoozes a job about which nothing could be decided, so that nothing has throttled it.
func snooze() error { return &rivertype.JobSnoozeError{Duration: time.Second + rand.N(time.Second)} }

// fail reports that a job cannot be throttled.
func (s *session) fail(err error) error {
	s.throttler.events.Add(Event{Kind: EventJobFailed, Job: s.job.ID, JobKind: s.job.Kind, Err: err})
	return err
}

// metadataKey is the key in a job's metadata under which a throttled job has its limiter and the time when it comes back.
const metadataKey = "weir"

// throttledBefore reports whether an earlier run of the job was throttled.
func (s *session) throttledBefore() bool {
	return bytes.Contains(s.job.Metadata, []byte(`"`+metadataKey+`"`))
}

// refuse returns the error that snoozes a throttled job, or cancels it.
func (s *session) refuse(ctx context.Context, limiter Ref, next time.Time, snoozes bool) error {
	if !snoozes {
		_ = river.MetadataSet(ctx, metadataKey, map[string]any{"throttled_by": limiter}) // only fails outside of River
		return river.JobCancel(&ThrottledError{Limiter: limiter, Next: next})
	}
	_ = river.MetadataSet(ctx, metadataKey, map[string]any{"throttled_by": limiter, "until": next.UTC()})
	// River adds the duration to this machine's clock. For 5 s and less it compares the sum with the database's clock, so the
	// duration is the time until next by this machine's clock, and may be negative. For more than 5 s, River's leader compares
	// the sum with its own clock. If that is behind, lookAfterWaiters makes the job available.
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
	if s.throttledBefore() {
		_ = river.MetadataSet(ctx, metadataKey, nil)
	}
	if result.heldRows == 0 {
		return
	}
	r := req.newRelease(result)
	s.held = &r
	s.throttler.leases.add(s)
}

// end releases what the run holds.
func (s *session) end() {
	if s.held == nil {
		return
	}
	t := s.throttler
	t.leases.remove(s)
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

// leases renews the leases of jobs that hold slots.
type leases struct {
	pool    *pgxpool.Pool
	sql     *statements
	length  time.Duration
	timeout time.Duration   // of a call
	closed  context.Context // ends with Close
	events  *eventqueue.Queue[Event]

	mu       sync.Mutex
	sessions map[*session]bool
}

// add begins to renew the leases of a run.
func (l *leases) add(s *session) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s.renewed = s.granted.written
	l.sessions[s] = true
}

func (l *leases) remove(s *session) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.sessions, s)
}

// renew renews the leases of all running jobs, and ends the contexts of jobs that have lost theirs. A job has lost its slots
// if one of its rows is missing or its lease has ended, because then another job may be about to take them. If the database
// does not answer, a job in relaxed mode loses its slots before its lease ends: renew runs four times in a lease, so that is
// after half of it to three quarters.
func (l *leases) renew() (next time.Duration) {
	asked := time.Now()
	defer func() { next = max(l.length/4-time.Since(asked), time.Millisecond) }()
	l.mu.Lock()
	byRun := map[runID]*session{}
	var jobs []int64
	var attempted []time.Time
	for s := range l.sessions {
		byRun[s.held.run] = s
		jobs, attempted = append(jobs, s.held.run.job), append(attempted, time.UnixMicro(s.held.run.attempted))
	}
	l.mu.Unlock()
	if len(jobs) == 0 {
		return next
	}
	ctx, cancel := context.WithTimeout(l.closed, min(l.timeout, l.length/4))
	defer cancel()
	found := map[runID]int{} // how many rows of the run have been renewed
	var job int64
	var at time.Time
	err := query(ctx, l.pool, eachRow(func() { found[runID{job, at.UnixMicro()}]++ }, &job, &at),
		l.sql.RenewLeases, jobs, attempted, l.length.Microseconds())
	l.mu.Lock()
	defer l.mu.Unlock()
	for r, s := range byRun {
		switch {
		case !l.sessions[s]: // it has ended meanwhile
		case err == nil && found[r] >= s.granted.heldRows:
			s.renewed = asked
		case err == nil:
			l.lose(s, fmt.Errorf("%w: another run of the job, another job or an operator has taken it", ErrLost))
		case s.granted.leased && time.Since(s.renewed) >= l.length/2:
			l.lose(s, fmt.Errorf("%w: the lease could not be renewed: %w", ErrLost, err))
		}
	}
	return next
}

// close ends the contexts of running jobs whose leases are not renewed any more.
func (l *leases) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for s := range l.sessions {
		if s.granted.leased {
			l.lose(s, fmt.Errorf("%w: %w", ErrLost, ErrClosed))
		}
	}
}

// lose ends the context of a job that has lost its slots. The caller holds l.mu.
func (l *leases) lose(s *session, why error) {
	delete(l.sessions, s)
	s.cancel(why)
	l.events.Add(Event{Kind: EventSlotLost, Job: s.job.ID, JobKind: s.job.Kind, Err: why})
}
