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

// A batcher collects what the jobs of this process ask and release, and has it done in one transaction after the other:
// while one is under way, what comes is for the next. Jobs that wait in their workers ask again when a slot that they
// need is released here, and from time to time for slots that are released elsewhere.
type batcher struct {
	do      func(context.Context, []*ask, []release, int) error
	timeout time.Duration // of one transaction
	room    int           // how many jobs may wait in their workers
	result  func(error)   // is told how each transaction ended

	mu       sync.Mutex
	asks     []*ask
	releases []release
	looks    []look // by time
	closed   bool
	wake     chan struct{} // something has come; of size 1
	done     chan struct{} // run has ended

	present  []*ask // wait in their workers; only run uses it
	failures int    // in a row; only run uses it
}

const (
	// maxBatch bounds the asks of one transaction.
	maxBatch = 5000
	// A job that waits in its worker asks again after half the time it is expected to wait, between these. If others here
	// come before it, it only says from time to time that it is there.
	minAgain, maxAgain = 5 * time.Millisecond, 100 * time.Millisecond
	sayAgain           = presentFor / 2 * time.Microsecond
	// River starts the jobs that it has fetched together one after the other. The first one that asks waits for the others,
	// so that the lowest ID comes first.
	linger = 500 * time.Microsecond
	// After a transaction that failed the next one waits, twice as long each time, between these.
	minPause, maxPause = 50 * time.Millisecond, time.Second
)

func newBatcher(timeout time.Duration, room int, do func(context.Context, []*ask, []release, int) error, result func(error)) *batcher {
	b := &batcher{do: do, timeout: timeout, room: room, result: result, wake: make(chan struct{}, 1), done: make(chan struct{})}
	go b.run()
	return b
}

// ask waits until the job is granted what it needs or sent away, or the context ends.
func (b *batcher) ask(ctx context.Context, a *ask) (verdict, error) {
	a.done = make(chan verdict, 1)
	b.mu.Lock()
	if b.closed {
		b.mu.Unlock()
		return verdict{}, ErrClosed
	}
	b.asks = append(b.asks, a)
	b.mu.Unlock()
	b.signal()
	select {
	case v := <-a.done:
		return v, v.err
	case <-ctx.Done():
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	a.left = true
	select {
	case v := <-a.done:
		return v, v.err
	default:
		return verdict{}, context.Cause(ctx)
	}
}

// leave has jobs that never come give back the places that they have reserved.
func (b *batcher) leave(jobs map[int64][]need) {
	b.mu.Lock()
	for job, needs := range jobs {
		b.asks = append(b.asks, &ask{job: job, leaves: true, needs: needs, done: make(chan verdict, 1), left: true})
	}
	b.mu.Unlock()
	b.signal()
}

func (b *batcher) release(r release) {
	b.mu.Lock()
	if !b.closed {
		b.releases = append(b.releases, r)
	}
	b.mu.Unlock()
	b.signal()
}

// A look is at keys whose slots may be free then, to bring back those who wait for them.
type look struct {
	at   time.Time
	keys []int64
}

const (
	// recorded is after what time River has written down in most cases how a run has ended.
	recorded = 300 * time.Millisecond
	// lookEvery bounds how often keys are looked at.
	lookEvery = 100 * time.Millisecond
)

// later has keys looked at after a while.
func (b *batcher) later(keys []int64, delay time.Duration) {
	if len(keys) == 0 {
		return
	}
	b.mu.Lock()
	at := time.Now().Add(delay + lookEvery).Truncate(lookEvery)
	i, found := slices.BinarySearchFunc(b.looks, at, func(l look, at time.Time) int { return l.at.Compare(at) })
	if !found {
		b.looks = slices.Insert(b.looks, i, look{at: at})
	}
	b.looks[i].keys = append(b.looks[i].keys, keys...)
	b.mu.Unlock()
	b.signal()
}

func (b *batcher) signal() {
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

// close ends the batcher when everything that was released has been written. Jobs that ask get ErrClosed.
func (b *batcher) close() {
	b.mu.Lock()
	b.closed = true
	b.mu.Unlock()
	b.signal()
	<-b.done
}

func (b *batcher) run() {
	ended := false
	defer func() {
		if !ended { // a hook of the pool has called runtime.Goexit
			go b.run()
			return
		}
		close(b.done)
	}()
	again := time.NewTimer(0)
	defer again.Stop()
	if b.failures > 0 {
		b.pause()
	}
	for {
		b.mu.Lock()
		asks, releases, closed := b.take()
		b.mu.Unlock()
		switch {
		case len(asks)+len(releases) > 0:
			b.batch(asks, releases)
			if b.failures > 0 {
				b.pause()
			}
		case closed:
			ended = true
			return
		default:
			again.Reset(b.untilAgain())
			select {
			case <-b.wake:
				if b.onlyAsks() {
					time.Sleep(linger)
				}
			case <-again.C:
			}
		}
	}
}

// onlyAsks reports whether nothing has come but asks: for a release, jobs may be waiting.
func (b *batcher) onlyAsks() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.asks) > 0 && len(b.releases) == 0 && !b.closed
}

func (b *batcher) pause() {
	t := time.NewTimer(min(minPause<<min(b.failures-1, 10), maxPause))
	defer t.Stop()
	for {
		select {
		case <-t.C:
			return
		case <-b.wake:
			b.mu.Lock()
			closed := b.closed
			b.mu.Unlock()
			if closed {
				b.signal()
				return
			}
		}
	}
}

// take returns what the next transaction is for. The caller holds b.mu.
func (b *batcher) take() (asks []*ask, releases []release, closed bool) {
	if b.closed {
		for _, a := range append(b.asks, b.present...) {
			a.answer(verdict{err: ErrClosed})
		}
		b.asks, b.present = nil, nil
	}
	b.asks = slices.DeleteFunc(b.asks, func(a *ask) bool { return a.left && !a.leaves }) // windows would count a job that does not run
	n := min(len(b.asks), maxBatch)
	asks, b.asks = b.asks[:n:n], b.asks[n:]
	releases, b.releases = b.releases, nil

	now := time.Now()
	for len(b.looks) > 0 && !b.looks[0].at.After(now) && !b.closed {
		releases = append(releases, release{contended: sorted(b.looks[0].keys)})
		b.looks = b.looks[1:]
	}
	freed := map[int64]int{} // by key, how many slots
	for _, r := range releases {
		for _, key := range r.contended {
			freed[key]++
		}
	}
	kept := b.present[:0]
	for _, a := range b.present { // by job
		include := !now.Before(a.again)
		a.each(func(key int64) {
			if freed[key] > 0 {
				freed[key]--
				include = true
			}
		})
		switch {
		case a.left:
		case include:
			a.stays = max(a.until.Sub(now), 0).Microseconds()
			asks = append(asks, a)
		default:
			kept = append(kept, a)
		}
	}
	clear(b.present[len(kept):])
	b.present = kept
	return asks, releases, b.closed
}

func (a *ask) each(f func(key int64)) {
	for i := range a.needs {
		f(a.needs[i].id)
	}
}

// answer is called once, with batcher.mu held.
func (a *ask) answer(v verdict) { a.done <- v }

// untilAgain is how long run may sleep.
func (b *batcher) untilAgain() time.Duration {
	d := time.Hour
	for _, a := range b.present {
		d = min(d, time.Until(a.again))
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.looks) > 0 {
		d = min(d, time.Until(b.looks[0].at))
	}
	return d
}

// errHook: what panicked is in the log.
var errHook = errors.New("jobs: a hook of the pool has panicked or called runtime.Goexit")

func (b *batcher) batch(asks []*ask, releases []release) {
	ctx, cancel := context.WithTimeout(context.Background(), b.timeout)
	defer cancel()
	err := errHook
	defer func() { b.deliver(asks, releases, err) }() // deferred: the asks are answered also if a hook calls Goexit
	recovered.Call("jobs: a batch", func() { err = b.do(ctx, asks, releases, b.room-len(b.present)) })
}

// deliver hands out the answers of a transaction.
func (b *batcher) deliver(asks []*ask, releases []release, err error) {
	b.result(err)
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	for _, a := range asks {
		v := a.result
		if err != nil {
			v = verdict{err: err}
		}
		switch {
		case v.err == nil && v.present && !a.left:
			a.asked = now
			b.present = append(b.present, a)
		case a.left && v.granted && v.leased:
			b.releases = append(b.releases, a.release(v))
		case !a.left:
			a.answer(v)
		}
	}
	b.schedule()
	if err == nil {
		b.failures = 0
		return
	}
	b.failures++
	b.again(releases)
}

// schedule sets when the jobs that wait in their workers ask again.
func (b *batcher) schedule() {
	slices.SortStableFunc(b.present, func(x, y *ask) int { return cmp.Compare(x.job, y.job) })
	first := map[int64]bool{} // by key: a job that comes before was seen
	for _, a := range b.present {
		behind := true
		a.each(func(key int64) {
			behind = behind && first[key]
			first[key] = true
		})
		wait := sayAgain
		if !behind {
			wait = min(max(time.Duration(a.result.turn/2)*time.Microsecond, minAgain), maxAgain)
		}
		a.again = a.asked.Add(wait)
	}
}

// again keeps releases that could not be written for the next transaction. What is never written is released when the
// job's row shows that it has ended, or with the lease.
func (b *batcher) again(releases []release) {
	if !b.closed {
		all := append(releases, b.releases...)
		b.releases = all[:min(len(all), 2*maxBatch)]
	}
}

func (a *ask) release(v verdict) release {
	return release{run: run{a.job, a.attempted.UnixMicro()}, attempted: a.attempted, contended: v.contended}
}
