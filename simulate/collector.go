package simulate

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/strategies/circuitbreaker"
	"github.com/weir-go/weir/strategies/ratelimit"
	"github.com/weir-go/weir/strategies/timeout"
)

const keptKeys = 1_000_000

// A collector makes the result of a run. Only the task that has the turn uses it, or the main goroutine while no task has
// it.
type collector struct {
	result  *Result
	since   func() time.Duration
	answer  time.Duration // an execution that a limiter answers within it has not waited: that is the time of a store
	waiting int64         // executions that wait for a permit
	running int64         // calls that the service has
	latency histogram
	wait    histogram
	service histogram
	most    []*mostOf
	recent  histogram // the latencies of the last point of the result
}

func newCollector(s *Scenario, since func() time.Duration) collector {
	c := collector{
		since: since,
		result: &Result{
			Seed: s.Seed, For: s.Load.For, Instances: s.Instances, Interval: s.Interval,
			Rejections: map[string]int64{}, Failures: map[string]int64{}, keyed: map[string]*keyCounts{}, open: s.Load.Closed == nil, closed: s.Load.Closed != nil,
		},
	}
	for _, w := range s.Windows {
		c.most = append(c.most, newMost(w))
	}
	return c
}

// point returns the point of now, the last of the series. It adds points to the series until there is one.
func (c *collector) point() *Point {
	r := c.result
	i := int(c.since() / r.Interval)
	for len(r.Series) <= i {
		c.endPoint()
		r.Series = append(r.Series, Point{At: time.Duration(len(r.Series)) * r.Interval, Waiting: c.waiting, Running: c.running})
	}
	return &r.Series[i]
}

// endPoint ends the last point, if there is one.
func (c *collector) endPoint() {
	if n := len(c.result.Series); n > 0 {
		c.result.Series[n-1].Latency = c.recent.quantiles()
	}
	c.recent = histogram{buckets: c.recent.buckets[:0]}
}

func (c *collector) count(what func(*Counts)) {
	p := c.point()
	what(&c.result.Total)
	what(&p.Counts)
}

// sample notes what waits and runs now. It is called before and after the time moves on, so that what waits through a whole
// interval is in its point.
func (c *collector) sample() {
	p := c.point()
	p.Waiting, p.Running = max(p.Waiting, c.waiting), max(p.Running, c.running)
}

// countsOf returns the counts of a key, or nil if there are too many keys.
func (c *collector) countsOf(key string) *keyCounts {
	k := c.result.keyed[key]
	if k == nil && len(c.result.keyed) < keptKeys {
		k = new(keyCounts)
		c.result.keyed[key] = k
	}
	return k
}

// began is called when a client has a request.
func (c *collector) began() { c.count(func(n *Counts) { n.Requests++ }) }

func (c *collector) offers(r *request, attempt int) {
	r.begun, r.reached, r.queued, r.failedBy = c.since(), false, false, ""
	c.count(func(n *Counts) {
		n.Offered++
		if attempt > 0 {
			n.TriedAgain++
		}
	})
	if r.counts != nil {
		r.counts.offered++
	} else {
		c.result.Keys.Unkept++
	}
}

func (c *collector) asks(t *task) {
	t.asking, t.since = true, c.since()
	c.waiting++
}

func (c *collector) granted(t *task) {
	if d, ok := c.answered(t); ok {
		c.wait.add(d)
	}
}

// refused is called when an execution comes back from a limiter, whether it was granted a permit or not.
func (c *collector) refused(t *task) { c.answered(t) }

// answered returns how long t asked. ok is false if it does not ask.
func (c *collector) answered(t *task) (d time.Duration, ok bool) {
	if !t.asking {
		return 0, false
	}
	t.asking = false
	c.waiting--
	d = c.since() - t.since
	if d > c.answer && !t.request.queued {
		t.request.queued = true
		c.count(func(n *Counts) { n.Queued++ })
	}
	return d, true
}

func (c *collector) calls(t *task) {
	r := t.request
	first := !r.reached
	r.reached = true
	c.count(func(n *Counts) {
		n.Calls++
		if first {
			n.Admitted++
		} else {
			n.Retried++
		}
	})
	if first && r.counts != nil {
		r.counts.admitted++
	}
	permits := int64(t.permits)
	if t.permits == noPermits {
		permits = 1
	}
	for _, m := range c.most {
		m.add(c.since(), r.key, permits, r.counts != nil)
	}
}

func (c *collector) serves(took time.Duration) { c.service.add(took) }

func (c *collector) inService(n int64) { c.running += n }

func (c *collector) ended(r *request, err error) {
	switch {
	case err == nil:
		took := c.since() - r.begun
		c.count(func(n *Counts) { n.Succeeded++ })
		c.latency.add(took)
		c.recent.add(took)
	case isRejection(err):
		c.count(func(n *Counts) { n.Rejected++ })
		c.result.Rejections[cause(r, err)]++
		if r.counts != nil {
			r.counts.rejected++
		}
	default:
		c.count(func(n *Counts) { n.Failed++ })
		c.result.Failures[cause(r, err)]++
	}
}

var (
	errFailed = errors.New("simulate: the service failed")
	errFull   = errors.New("simulate: the service has no room for another call")
)

// isRejection reports whether a strategy rejected the last attempt of an execution, so that it did not reach the service. An
// execution whose context ended in the queue of a limiter has failed: a timeout ended it, or its client left.
func isRejection(err error) bool {
	_, timedOut := errors.AsType[*timeout.Error](err)
	return pipeline.NotCalled(err) && !timedOut && errors.Is(err, pipeline.ErrRejected)
}

// The reasons of Result.Failures other than strategies.
const (
	reasonFailed = "the service failed"
	reasonFull   = "the service was full"
	reasonLeft   = "the client left"
	reasonCut    = "cut off"
	reasonOther  = "other"
)

// cause returns the strategy that rejected an execution or made it fail, or else one of the reasons.
func cause(r *request, err error) string {
	var source pipeline.Source
	if e, ok := errors.AsType[*ratelimit.RejectedError](err); ok {
		source = e.Source
	} else if e, ok := errors.AsType[*circuitbreaker.OpenError](err); ok {
		source = e.Source
	} else if e, ok := errors.AsType[*timeout.Error](err); ok {
		source = e.Source
	}
	switch {
	case source.Strategy != "":
		return nameOf(source)
	case errors.Is(err, errFailed):
		return reasonFailed
	case errors.Is(err, errFull):
		return reasonFull
	case r.failedBy != "":
		return r.failedBy
	case errors.Is(err, context.DeadlineExceeded):
		return reasonLeft
	case errors.Is(err, context.Canceled):
		return reasonCut
	}
	return reasonOther
}

// nameOf returns how a Result calls a strategy.
func nameOf(s pipeline.Source) string { return s.Pipeline + "/" + s.Strategy }

// gone is called when a client is done with its request. unfinished reports whether it was cut off.
func (c *collector) gone(r *request, err error, unfinished bool) {
	c.result.Ended = c.since()
	switch {
	case unfinished:
		c.count(func(n *Counts) { n.Unfinished++ })
	case err == nil:
		c.result.satisfied.set(r.number)
		c.count(func(n *Counts) { n.Satisfied++ })
	}
}

func (c *collector) finish(assumed map[string]bool) *Result {
	r := c.result
	r.Assumed = slices.Sorted(maps.Keys(assumed))
	r.Latency, r.Wait, r.Service = c.latency.quantiles(), c.wait.quantiles(), c.service.quantiles()
	c.endPoint()
	for _, m := range c.most {
		r.Most = append(r.Most, m.most())
	}
	r.Keys = fairness(r.keyed, r.Keys.Unkept)
	return r
}
