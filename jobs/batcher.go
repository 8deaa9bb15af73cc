package jobs

import (
	"context"
	"slices"
	"sync"
	"time"
)

// A batcher collects the requests and releases of this process and handles them in one transaction after the other. While
// one runs, what comes waits for the next. Jobs that wait in their workers ask again when a slot that they need is released
// in this process, and from time to time for slots that are released elsewhere.
type batcher struct {
	transact func(context.Context, []*request, []release, int) error
	timeout  time.Duration // of one transaction
	room     int           // how many jobs may wait in their workers
	report   func(error)   // called with the result of each transaction

	mu       sync.Mutex
	requests []*request
	releases []release
	rechecks []recheck // by time
	closed   bool
	wake     chan struct{} // something has come; of size 1
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
	b := &batcher{transact: transact, timeout: timeout, room: room, report: report, wake: make(chan struct{}, 1), done: make(chan struct{})}
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
	at := time.Now().Add(delay + recheckEvery).Truncate(recheckEvery)
	i, found := slices.BinarySearchFunc(b.rechecks, at, func(l recheck, at time.Time) int { return l.at.Compare(at) })
	if !found {
		b.rechecks = slices.Insert(b.rechecks, i, recheck{at: at})
	}
	b.rechecks[i].keys = append(b.rechecks[i].keys, keys...)
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
	b.closed = true
	b.mu.Unlock()
	b.signal()
	<-b.done
}
