package jobs

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/weir-go/weir/internal/recovered"
)

// A batcher collects the requests and releases of this process and handles them in one transaction after the other. While
// one runs, what comes waits for the next. Jobs that wait in their workers ask again when a slot that they need is released
// in this process, and from time to time for slots that are released elsewhere.
type batcher struct {
	transact func(context.Context, []*request, []release, int) error
	timeout  time.Duration // of one transaction
	room     int           // how many jobs may wait in their workers
	report   func(error)   // called with the error of a transaction after one that succeeded, and with nil the other way round

	mu       sync.Mutex
	requests []*request
	releases []release
	rechecks []recheck
	closed   bool
	wake     chan struct{} // something has come; of size 1
	closing  chan struct{} // close was called
	done     chan struct{} // run has ended

	inWorkers []*request // of jobs that wait in their workers; only run uses it
	failures  int        // in a row; only run uses it
}

const (
	// maxBatch bounds the requests of one transaction.
	maxBatch = 5000
	// A job that waits in its worker asks again after half its expected wait, between minAgain and maxAgain. A job that has
	// others of this process before it at every key asks each repeatEvery, which only keeps its row in jobs_waiters fresh.
	minAgain, maxAgain = 5 * time.Millisecond, 100 * time.Millisecond
	repeatEvery        = inWorkerFor / 2 * time.Microsecond
	// River starts the jobs that it has fetched together one after the other. The first request lingers for the others, so
	// that the lowest ID is decided first.
	linger = 500 * time.Microsecond
	// The pause after a failed transaction doubles with each failure in a row, from minPause to maxPause.
	minPause, maxPause = 50 * time.Millisecond, time.Second
)

func newBatcher(timeout time.Duration, room int, transact func(context.Context, []*request, []release, int) error, report func(error)) *batcher {
	b := &batcher{transact: transact, timeout: timeout, room: room, report: report, wake: make(chan struct{}, 1), closing: make(chan struct{}), done: make(chan struct{})}
	go b.run()
	return b
}

// decide waits until the request is granted or refused, or the context ends.
func (b *batcher) decide(ctx context.Context, req *request) (decision, error) {
	req.answered = make(chan decision, 1)
	b.mu.Lock()
	if b.closed {
		b.mu.Unlock()
		return decision{}, ErrClosed
	}
	b.requests = append(b.requests, req)
	b.mu.Unlock()
	b.signal()
	select {
	case result := <-req.answered:
		return result, result.err
	case <-ctx.Done():
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	req.abandoned = true
	select {
	case result := <-req.answered:
		return result, result.err
	default:
		return decision{}, context.Cause(ctx)
	}
}

func (b *batcher) release(r release) {
	b.mu.Lock()
	if !b.closed {
		b.releases = append(b.releases, r)
	}
	b.mu.Unlock()
	b.signal()
}

// A recheck says when to look at keys whose slots may be free by then, to bring back the jobs that wait for them.
type recheck struct {
	at   time.Time
	keys []int64
}

const (
	// recordDelay is the time after which River has usually recorded how a run has ended.
	recordDelay = 300 * time.Millisecond
	// recheckEvery bounds how often keys are rechecked.
	recheckEvery = 100 * time.Millisecond
)

// recheckLater has keys rechecked after a delay.
func (b *batcher) recheckLater(keys []int64, delay time.Duration) {
	if len(keys) == 0 {
		return
	}
	b.mu.Lock()
	b.rechecks = append(b.rechecks, recheck{time.Now().Add(delay + recheckEvery).Truncate(recheckEvery), keys})
	b.mu.Unlock()
	b.signal()
}

func (b *batcher) signal() {
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

// close ends the batcher when every release has been written. Requests get ErrClosed.
func (b *batcher) close() {
	b.mu.Lock()
	if !b.closed {
		b.closed = true
		close(b.closing)
	}
	b.mu.Unlock()
	b.signal()
	<-b.done
}

func (b *batcher) run() {
	defer close(b.done)
	again := time.NewTimer(0)
	defer again.Stop()
	for {
		b.mu.Lock()
		reqs, releases, closed := b.take()
		b.mu.Unlock()
		switch {
		case len(reqs)+len(releases) > 0:
			b.runBatch(reqs, releases)
			if b.failures > 0 {
				again.Reset(min(minPause<<min(b.failures-1, 10), maxPause))
				select {
				case <-again.C:
				case <-b.closing:
				}
			}
		case closed:
			return
		default:
			again.Reset(b.untilNext())
			select {
			case <-b.wake:
				if b.onlyRequests() {
					time.Sleep(linger)
				}
			case <-again.C:
			}
		}
	}
}

// onlyRequests reports whether requests have come and no release. A release is not delayed, because jobs may wait for it.
func (b *batcher) onlyRequests() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.requests) > 0 && len(b.releases) == 0 && !b.closed
}

// take returns what the next transaction is for. The caller holds b.mu.
func (b *batcher) take() (reqs []*request, releases []release, closed bool) {
	if b.closed {
		for _, req := range append(b.requests, b.inWorkers...) {
			req.answer(decision{err: ErrClosed})
		}
		b.requests, b.inWorkers = nil, nil
	}
	// Otherwise windows would count jobs that do not run.
	b.requests = slices.DeleteFunc(b.requests, func(req *request) bool { return req.abandoned })
	n := min(len(b.requests), maxBatch)
	reqs, b.requests = b.requests[:n:n], b.requests[n:]
	releases, b.releases = b.releases, nil

	now := time.Now()
	var recheckNow []int64
	b.rechecks = slices.DeleteFunc(b.rechecks, func(r recheck) bool {
		due := !b.closed && !r.at.After(now)
		if due {
			recheckNow = append(recheckNow, r.keys...)
		}
		return due
	})
	if len(recheckNow) > 0 {
		releases = append(releases, release{contended: sorted(recheckNow)})
	}
	freed := map[int64]int{} // by key, how many slots
	for _, r := range releases {
		for _, key := range r.contended {
			freed[key]++
		}
	}
	kept := b.inWorkers[:0]
	for _, req := range b.inWorkers { // by job
		include := !now.Before(req.askAgain)
		for i := range req.needs {
			if key := req.needs[i].id; freed[key] > 0 {
				freed[key]--
				include = true
			}
		}
		switch {
		case req.abandoned:
		case include:
			req.handOver = max(req.handOverEnd.Sub(now), 0).Microseconds()
			reqs = append(reqs, req)
		default:
			kept = append(kept, req)
		}
	}
	clear(b.inWorkers[len(kept):])
	b.inWorkers = kept
	return reqs, releases, b.closed
}

// answer is called once, with batcher.mu held.
func (req *request) answer(result decision) { req.answered <- result }

// untilNext returns how long run may sleep.
func (b *batcher) untilNext() time.Duration {
	d := time.Hour
	for _, req := range b.inWorkers {
		d = min(d, time.Until(req.askAgain))
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, r := range b.rechecks {
		d = min(d, time.Until(r.at))
	}
	return d
}

// errPanic is the error of a batch that has panicked, in the jobs package or in a hook of the pool. The panic is in the log.
var errPanic = errors.New("jobs: a batch has panicked: see the log")

func (b *batcher) runBatch(reqs []*request, releases []release) {
	ctx, cancel := context.WithTimeout(context.Background(), b.timeout)
	defer cancel()
	err := errPanic
	recovered.Call("jobs: a batch", func() { err = b.transact(ctx, reqs, releases, b.room-len(b.inWorkers)) })
	b.deliver(reqs, releases, err)
}

// deliver hands out the answers of a transaction.
func (b *batcher) deliver(reqs []*request, releases []release, err error) {
	if (err != nil) != (b.failures > 0) {
		b.report(err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	for _, req := range reqs {
		result := req.decision
		if err != nil {
			result = decision{err: err}
		}
		switch {
		case result.err == nil && result.inWorker && !req.abandoned:
			req.asked = now
			b.inWorkers = append(b.inWorkers, req)
		case req.abandoned && (result.leased || result.kept):
			b.releases = append(b.releases, req.unused(result))
		case !req.abandoned:
			req.answer(result)
		}
	}
	b.scheduleAgain()
	if err == nil {
		b.failures = 0
		return
	}
	b.failures++
	b.keepReleases(releases)
}

// scheduleAgain sets when the jobs that wait in their workers ask again.
func (b *batcher) scheduleAgain() {
	slices.SortStableFunc(b.inWorkers, func(x, y *request) int { return cmp.Compare(x.job, y.job) })
	seen := map[int64]bool{} // keys of the jobs before
	for _, req := range b.inWorkers {
		behind := true
		for i := range req.needs {
			key := req.needs[i].id
			behind = behind && seen[key]
			seen[key] = true
		}
		wait := repeatEvery
		if !behind {
			wait = min(max(time.Duration(req.decision.expectedWait/2)*time.Microsecond, minAgain), maxAgain)
		}
		req.askAgain = req.asked.Add(wait)
	}
}

// keepReleases keeps releases that could not be written for the next transaction. Slots whose release is never written
// become free when the row of the job shows that it has ended, or when the lease ends.
func (b *batcher) keepReleases(releases []release) {
	if !b.closed {
		all := append(releases, b.releases...)
		b.releases = all[:min(len(all), 2*maxBatch)]
	}
}
