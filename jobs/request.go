package jobs

import (
	"fmt"
	"time"

	"github.com/riverqueue/river/rivertype"
)

// A request asks whether the run of a job may start.
type request struct {
	job       int64
	attempted time.Time // when this run of the job began
	first     bool      // it is the job's first run, so the job holds nothing yet
	strict    bool
	snoozes   bool  // if throttled, the job is snoozed; if false, it is cancelled and waits for nothing
	handOver  int64 // for how long the job may wait in its worker, µs
	minDelay  int64 // µs
	needs     []need

	decision decision

	// For the batcher, while the job waits in its worker.
	handOverEnd time.Time
	asked       time.Time // when it was decided last
	askAgain    time.Time // when it is to be decided again
	answered    chan decision
	abandoned   bool // the job no longer waits for the answer; guarded by batcher.mu
}

// A need is one limit of a job, with its templates filled in.
type need struct {
	ref        Ref
	owner      string
	named      bool // the owner is not the job
	mode       Mode
	deadline   int64 // µs; 0: none
	id         int64 // of the row in jobs_keys
	dynamicRow int64 // dynamic windows: the ID of the limiter's own row, which has no key
}

// A decision is the answer to a request.
type decision struct {
	err     error
	granted bool
	limiter Ref // the one that makes the job wait longest or, if it is granted, for which it has waited longest

	// If granted.
	fence     int64
	fenced    bool      // the job needs a slot
	heldRows  int       // rows of jobs_holders to be renewed and released
	leased    bool      // these rows have a lease
	kept      bool      // an owner has a slot from this run on, and keeps it
	written   time.Time // before these rows were written, by this machine's clock
	contended []int64   // keys of these rows for which other jobs may wait when they are released
	waited    int64     // µs since the job was first throttled; 0: it was not

	// If throttled.
	wake         int64 // when the job comes back
	inWorker     bool  // the job waits in its worker
	expectedWait int64 // in its worker, µs
}

// newRequest returns the request for the job of a session.
func (t *Throttler) newRequest(s *session) (*request, error) {
	req := &request{job: s.job.ID, handOver: t.o.HandOver.Microseconds(), handOverEnd: time.Now().Add(t.o.HandOver)}
	cancel := t.o.Cancel
	for _, p := range s.declared {
		req.strict, cancel = req.strict || p.strict, cancel || p.cancel
		s.minDelay = max(s.minDelay, p.minDelay)
		for _, l := range p.limits {
			n, err := l.need(s.job)
			if err != nil {
				return nil, err
			}
			if err := req.add(n); err != nil {
				return nil, err
			}
		}
	}
	if s.minDelay == 0 {
		s.minDelay = t.o.MinDelay
	}
	if at := s.job.AttemptedAt; at != nil {
		req.attempted, req.first = *at, len(s.job.AttemptedBy) == 1
	} else if len(req.needs) > 0 {
		return nil, fmt.Errorf("%w: job %d was never attempted", ErrForeignJob, s.job.ID)
	}
	req.snoozes, req.minDelay = !cancel, s.minDelay.Microseconds()
	return req, nil
}

// need returns the limit with its templates filled in for a job.
func (l parsedLimit) need(job *rivertype.JobRow) (n need, err error) {
	n = need{ref: l.ref, mode: l.mode, deadline: l.deadline.Microseconds()}
	if n.ref.Key, err = l.key.fill(job); err != nil {
		return n, fmt.Errorf("%v: %w", l.ref, err)
	}
	owner, err := l.owner.fill(job)
	if err != nil {
		return n, fmt.Errorf("owner of %v: %w", l.ref, err)
	}
	n.owner, n.named = ownerOf(job.ID, owner), owner != ""
	return n, nil
}

// namedOwner is the prefix of owners with a name of their own. The owner of a job has another, so the two are never the
// same.
const namedOwner = "owner "

// ownerOf returns the owner of that name or, if name is empty, the owner that is the job itself.
func ownerOf(job int64, name string) string {
	if name == "" {
		return fmt.Sprint("job ", job)
	}
	return namedOwner + name
}

// add adds a need, of at most maxLimits in all. A limit that both the worker and a configuration declare counts once.
func (req *request) add(n need) error {
	for _, other := range req.needs {
		if other.ref != n.ref {
			continue
		}
		if other == n {
			return nil
		}
		return invalid(fmt.Errorf("job %d needs %v twice, with different owners, modes or deadlines", req.job, n.ref))
	}
	if len(req.needs) == maxLimits {
		return invalid(fmt.Errorf("job %d needs more than %d limits", req.job, maxLimits))
	}
	req.needs = append(req.needs, n)
	return nil
}

// refs returns the rows that a need has. A dynamic window has a row of its own, which is locked, and one for each key.
func (n *need) refs() []Ref {
	if n.ref.Type == DynamicWindow {
		return []Ref{n.ref, {Type: n.ref.Type, Name: n.ref.Name}}
	}
	return []Ref{n.ref}
}

func eachNeed(reqs []*request, f func(*request, *need)) {
	for _, req := range reqs {
		for i := range req.needs {
			f(req, &req.needs[i])
		}
	}
}

// run returns which run of its job the request is for.
func (req *request) run() runID { return runID{req.job, req.attempted.UnixMicro()} }

// A runID names one run of a job.
type runID struct {
	job       int64
	attempted int64 // µs
}

// A release gives back what a run holds in relaxed mode.
type release struct {
	run       runID
	unused    bool    // the run never begins: what it has acquired for an owner is given back, too
	contended []int64 // keys whose waiters are to be looked at
}

func (req *request) newRelease(result decision) release {
	return release{run: req.run(), contended: result.contended}
}

// unused returns the release of what was granted to a run that does not begin.
func (req *request) unused(result decision) release {
	return release{run: req.run(), unused: true, contended: result.contended}
}
