package jobs

import (
	"context"
	"errors"
	"log/slog"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A fakeDatabase answers asks as answer says, after took.
type fakeDatabase struct {
	mu       sync.Mutex
	answer   func(req *request) decision
	fail     func(call int) error
	took     time.Duration
	calls    []call
	reported []error
}

type call struct {
	at       time.Duration // since the first
	jobs     []int64
	releases []int64
	room     int
	stays    []int64
}

var errDatabase = errors.New("the database is away")

func grantAll(*request) decision { return decision{granted: true} }

func (d *fakeDatabase) do(ctx context.Context, reqs []*request, releases []release, room int) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	c := call{room: room}
	for _, req := range reqs {
		c.jobs, c.stays = append(c.jobs, req.job), append(c.stays, req.handOver)
	}
	for _, r := range releases {
		c.releases = append(c.releases, r.run.job)
	}
	c.at = time.Since(start0)
	d.calls = append(d.calls, c)
	if d.took > 0 {
		select {
		case <-time.After(d.took):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if d.fail != nil {
		if err := d.fail(len(d.calls)); err != nil {
			return err
		}
	}
	for _, req := range reqs {
		req.decision = d.answer(req)
	}
	return nil
}

// start0 is when bubbles begin.
var start0 = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

func (d *fakeDatabase) batcher(room int) *batcher {
	if d.answer == nil {
		d.answer = grantAll
	}
	return newBatcher(10*time.Second, room, d.do, func(err error) {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.reported = append(d.reported, err)
	})
}

// seen returns what it was called with.
func (d *fakeDatabase) seen() []call {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.calls)
}

// change changes what it does, and forgets what it was called with.
func (d *fakeDatabase) change(f func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.calls = nil
	if f != nil {
		f()
	}
}

func askFor(job int64, keys ...int64) *request {
	req := &request{job: job, attempted: time.UnixMicro(job), handOverEnd: time.Now().Add(time.Second)}
	for _, key := range keys {
		req.needs = append(req.needs, need{id: key})
	}
	return req
}

// An answer is the answer to a request, and when it came.
type answer struct {
	decision
	err error
	at  time.Duration
}

// goAsk calls decide in another goroutine.
func (b *batcher) goAsk(ctx context.Context, req *request) <-chan answer {
	got := make(chan answer, 1)
	go func() {
		result, err := b.decide(ctx, req)
		got <- answer{result, err, time.Since(start0)}
	}()
	return got
}

// bubble runs a subtest with a clock of its own.
func bubble(t *testing.T, name string, f func(t *testing.T)) {
	t.Helper()
	t.Run(name, func(t *testing.T) { synctest.Test(t, f) })
}

func TestBatcher_DeliversAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		refused := errors.New("refused")
		d := &fakeDatabase{answer: func(req *request) decision {
			if req.job == 3 {
				return decision{err: refused}
			}
			return decision{granted: req.job%2 == 0, fence: req.job}
		}}
		b := d.batcher(16)
		defer b.close()
		for job := range int64(5) {
			result, err := b.decide(t.Context(), askFor(job))
			if job == 3 {
				assert.Equal(t, refused, err)
				continue
			}
			require.NoError(t, err)
			assert.Equal(t, job, result.fence)
			assert.Equal(t, job%2 == 0, result.granted)
		}
		assert.Len(t, d.seen(), 5)
		assert.Empty(t, d.reported, "an ask's error is not that of the transaction")
	})
}

func TestBatcher_CollectsDuringTransaction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &fakeDatabase{took: time.Second}
		b := d.batcher(16)
		var got []<-chan answer
		got = append(got, b.goAsk(t.Context(), askFor(1)))
		time.Sleep(linger)
		synctest.Wait()
		for job := range int64(2*maxBatch + 10) {
			got = append(got, b.goAsk(t.Context(), askFor(job+2)))
			b.release(release{run: runID{job: job}})
		}
		for _, c := range got {
			assert.NoError(t, (<-c).err)
		}
		var jobs, releases []int // how many of each: thousands would be printed else
		for _, c := range d.seen() {
			jobs, releases = append(jobs, len(c.jobs)), append(releases, len(c.releases))
		}
		assert.Equal(t, []int{1, maxBatch, maxBatch, 10}, jobs)
		assert.Equal(t, []int{0, 2*maxBatch + 10, 0, 0}, releases, "all that was released goes first")
		b.close()
		assert.Equal(t, len(jobs), len(d.seen()), "nothing is asked twice") //nolint:testifylint // Len would print thousands
	})
}

func TestBatcher_ContextEnds(t *testing.T) {
	cause := errors.New("the cause")
	setup := func(t *testing.T, result decision) (*fakeDatabase, *batcher, context.Context, context.CancelCauseFunc) {
		d := &fakeDatabase{took: time.Second, answer: func(*request) decision { return result }}
		ctx, cancel := context.WithCancelCause(t.Context())
		return d, d.batcher(16), ctx, cancel
	}
	inTransaction := func(t *testing.T, result decision) *fakeDatabase {
		d, b, ctx, cancel := setup(t, result)
		got := b.goAsk(ctx, askFor(1, 77))
		time.Sleep(500 * time.Millisecond)
		cancel(cause)
		a := <-got
		assert.Equal(t, cause, a.err)
		assert.Equal(t, 500*time.Millisecond, a.at, "at once")
		time.Sleep(10 * time.Second)
		b.close()
		return d
	}
	bubble(t, "before it is asked", func(t *testing.T) {
		d, b, ctx, cancel := setup(t, decision{granted: true})
		first := b.goAsk(t.Context(), askFor(1))
		synctest.Wait()
		second := b.goAsk(ctx, askFor(2))
		synctest.Wait()
		cancel(cause)
		assert.Equal(t, cause, (<-second).err)
		assert.NoError(t, (<-first).err)
		time.Sleep(10 * time.Second)
		b.close()
		require.Len(t, d.seen(), 1, "windows would count a job that does not run")
	})
	bubble(t, "while it is granted a lease", func(t *testing.T) {
		d := inTransaction(t, decision{granted: true, leased: true, heldRows: 1, contended: []int64{77}})
		require.Len(t, d.seen(), 2)
		assert.Equal(t, []int64{1}, d.seen()[1].releases, "an unused slot is released")
	})
	bubble(t, "while it acquires for an owner", func(t *testing.T) {
		d := inTransaction(t, decision{granted: true, kept: true})
		require.Len(t, d.seen(), 2)
		assert.Equal(t, []int64{1}, d.seen()[1].releases)
	})
	bubble(t, "while it is granted in strict mode", func(t *testing.T) {
		d := inTransaction(t, decision{granted: true, heldRows: 1})
		assert.Len(t, d.seen(), 1, "the job's row shows when it ends")
	})
	bubble(t, "while it is told to wait in its worker", func(t *testing.T) {
		d := inTransaction(t, decision{inWorker: true, expectedWait: second})
		assert.Len(t, d.seen(), 1)
	})
	bubble(t, "while it waits in its worker", func(t *testing.T) {
		d, b, ctx, cancel := setup(t, decision{inWorker: true, expectedWait: second})
		got := b.goAsk(ctx, askFor(1))
		time.Sleep(1010 * time.Millisecond)
		cancel(cause)
		assert.Equal(t, cause, (<-got).err)
		time.Sleep(10 * time.Second)
		assert.Len(t, d.seen(), 1, "it asks no more")
		b.close()
		assert.Empty(t, b.inWorkers)
	})
	bubble(t, "had ended before", func(t *testing.T) {
		_, b, ctx, cancel := setup(t, decision{granted: true})
		cancel(cause)
		_, err := b.decide(ctx, askFor(1))
		assert.Equal(t, cause, err)
		b.close()
	})
}

func TestBatcher_JobsInWorkersAskAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		free := map[int64]bool{}
		d := &fakeDatabase{}
		d.answer = func(req *request) decision {
			if free[req.job] {
				return decision{granted: true}
			}
			return decision{inWorker: true, expectedWait: map[int64]int64{1: 2 * ms, 2: 60 * ms, 3: 60 * ms, 4: 100 * second}[req.job]}
		}
		b := d.batcher(16)
		var got []<-chan answer
		got = append(got, nil, b.goAsk(t.Context(), askFor(1, 71)), b.goAsk(t.Context(), askFor(2, 72)), b.goAsk(t.Context(), askFor(3, 72)), b.goAsk(t.Context(), askFor(4, 74)))
		synctest.Wait()
		asked := map[int64][]time.Duration{}
		count := func() {
			clear(asked)
			for _, c := range d.seen() {
				for _, job := range c.jobs {
					asked[job] = append(asked[job], c.at)
				}
			}
		}
		time.Sleep(2 * time.Second)
		count()
		every := func(job int64) time.Duration {
			return (2*time.Second - asked[job][0]) / time.Duration(len(asked[job])-1)
		}
		assert.InDelta(t, minAgain, every(1), float64(time.Millisecond), "no more often than that")
		assert.InDelta(t, 30*time.Millisecond, every(2), float64(2*time.Millisecond), "in half the time that it is expected to wait")
		assert.InDelta(t, repeatEvery, every(3), float64(repeatEvery/3), "2 comes before it: only to say that it is there")
		assert.InDelta(t, maxAgain, every(4), float64(10*time.Millisecond), "no less often than that")
		for _, c := range d.seen() {
			for i, job := range c.jobs {
				if c.at <= linger {
					continue
				}
				left := max(1_000_000-c.at.Microseconds(), 0)
				assert.Equal(t, left, c.stays[i], "job %d at %v", job, c.at)
			}
		}

		d.change(func() { free[1], free[2], free[4] = true, true, true })
		began := time.Since(start0)
		assert.True(t, (<-got[1]).granted)
		assert.True(t, (<-got[2]).granted)
		assert.True(t, (<-got[4]).granted)
		assert.LessOrEqual(t, time.Since(start0)-began, maxAgain)
		d.change(nil)
		time.Sleep(time.Second)
		count()
		assert.InDelta(t, 30*time.Millisecond, time.Second/time.Duration(len(asked[3])), float64(3*time.Millisecond), "nothing comes before it now")
		d.change(func() { free[3] = true })
		assert.True(t, (<-got[3]).granted)
		b.close()
	})
}

// A slot that is released here lets the next jobs ask at once: as many as slots were released, in the order of their IDs.
func TestBatcher_ReleasedHere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &fakeDatabase{answer: func(*request) decision { return decision{inWorker: true, expectedWait: 1000 * second} }}
		b := d.batcher(16)
		for _, job := range []int64{5, 3, 4, 6} {
			b.goAsk(t.Context(), askFor(job, 71))
		}
		b.goAsk(t.Context(), askFor(7, 72))
		synctest.Wait()
		time.Sleep(time.Millisecond)
		d.change(nil)
		b.release(release{run: runID{job: 100}, contended: []int64{71}})
		synctest.Wait()
		require.Len(t, d.seen(), 1)
		assert.Equal(t, []int64{3}, d.seen()[0].jobs)
		assert.Equal(t, []int64{100}, d.seen()[0].releases)
		assert.Equal(t, 16-4, d.seen()[0].room, "the jobs that still wait take room")

		time.Sleep(time.Millisecond)
		d.change(func() { d.took = time.Millisecond })
		b.release(release{run: runID{job: 101}})
		synctest.Wait()
		b.release(release{run: runID{job: 102}, contended: []int64{71, 73}})
		b.release(release{run: runID{job: 103}, contended: []int64{71}})
		b.release(release{run: runID{job: 104}, contended: []int64{72}})
		time.Sleep(2 * time.Millisecond)
		require.Len(t, d.seen(), 2)
		assert.Empty(t, d.seen()[0].jobs, "no job waits for it")
		assert.Equal(t, []int64{3, 4, 7}, d.seen()[1].jobs)
		b.close()
	})
}

func TestBatcher_FailedTransaction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &fakeDatabase{fail: func(call int) error {
			if call <= 8 {
				return errDatabase
			}
			return nil
		}}
		b := d.batcher(16)
		b.release(release{run: runID{job: 100}})
		_, err := b.decide(t.Context(), askFor(1))
		assert.Equal(t, errDatabase, err, "the asks fail with it")
		b.release(release{run: runID{job: 101}})
		time.Sleep(10 * time.Second)
		require.Len(t, d.seen(), 9)
		var pauses []time.Duration
		for i, c := range d.seen()[1:] {
			pauses = append(pauses, c.at-d.seen()[i].at)
			assert.Equal(t, int64(100), c.releases[0], "kept, in order")
		}
		const s = time.Millisecond
		assert.Equal(t, []time.Duration{50 * s, 100 * s, 200 * s, 400 * s, 800 * s, 1000 * s, 1000 * s, 1000 * s}, pauses)
		assert.Equal(t, []int64{100, 101}, d.seen()[8].releases)
		assert.Equal(t, []error{errDatabase, nil}, d.reported)
		result, err := b.decide(t.Context(), askFor(2))
		require.NoError(t, err)
		assert.True(t, result.granted)
		assert.Empty(t, d.seen()[9].releases)
		b.close()
	})
}

func TestBatcher_KeepsReleasesWithinBounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &fakeDatabase{fail: func(int) error { return errDatabase }}
		b := d.batcher(16)
		for range 30 {
			for range maxBatch {
				b.release(release{})
			}
			time.Sleep(time.Second)
		}
		b.mu.Lock()
		kept := len(b.releases)
		b.mu.Unlock()
		assert.LessOrEqual(t, kept, 3*maxBatch)
		assert.GreaterOrEqual(t, kept, maxBatch)
		b.close()
	})
}

// Jobs learn that a transaction has failed, also in their workers.
func TestBatcher_Timeout(t *testing.T) {
	bubble(t, "in its worker", func(t *testing.T) {
		d := &fakeDatabase{answer: func(*request) decision { return decision{inWorker: true, expectedWait: second} }}
		b := d.batcher(16)
		got := b.goAsk(t.Context(), askFor(1, 71))
		time.Sleep(2 * linger)
		d.change(func() { d.took = time.Hour })
		a := <-got
		assert.ErrorIs(t, a.err, context.DeadlineExceeded)
		assert.InDelta(t, 10*time.Second+maxAgain, a.at, float64(2*linger))
		d.change(func() { d.took = 0 })
		b.close()
	})
	bubble(t, "first request", func(t *testing.T) {
		d := &fakeDatabase{took: time.Hour}
		b := d.batcher(16)
		_, err := b.decide(t.Context(), askFor(1))
		assert.ErrorIs(t, err, context.DeadlineExceeded)
		assert.InDelta(t, 10*time.Second, time.Since(start0), float64(linger))
		d.change(func() { d.took = 0 })
		_, err = b.decide(t.Context(), askFor(1))
		assert.NoError(t, err)
		b.close()
	})
}

func TestBatcher_Close(t *testing.T) {
	bubble(t, "answers everybody and writes what was released", func(t *testing.T) {
		d := &fakeDatabase{answer: func(req *request) decision {
			return decision{inWorker: req.job < 3, expectedWait: 1000 * second, granted: req.job == 3}
		}}
		b := d.batcher(16)
		inWorkers := []<-chan answer{b.goAsk(t.Context(), askFor(1, 71)), b.goAsk(t.Context(), askFor(2, 71))}
		synctest.Wait()
		d.change(func() { d.took = time.Second })
		asked := b.goAsk(t.Context(), askFor(3))
		time.Sleep(linger)
		synctest.Wait()
		next := b.goAsk(t.Context(), askFor(4))
		b.release(release{run: runID{job: 100}})
		synctest.Wait()
		closed := make(chan struct{})
		go func() {
			b.close()
			close(closed)
		}()
		assert.NoError(t, (<-asked).err, "the transaction under way ends")
		assert.ErrorIs(t, (<-next).err, ErrClosed)
		for _, c := range inWorkers {
			assert.ErrorIs(t, (<-c).err, ErrClosed)
		}
		<-closed
		last := d.seen()[len(d.seen())-1]
		assert.Equal(t, []int64{100}, last.releases)
		assert.Empty(t, last.jobs)
		_, err := b.decide(t.Context(), askFor(5))
		assert.ErrorIs(t, err, ErrClosed)
		b.release(release{run: runID{job: 101}})
		b.close()
		time.Sleep(time.Minute)
		assert.Equal(t, []int64{100}, d.seen()[len(d.seen())-1].releases)
	})
	bubble(t, "a job that is told to wait by the transaction under way", func(t *testing.T) {
		d := &fakeDatabase{took: time.Second, answer: func(*request) decision { return decision{inWorker: true} }}
		b := d.batcher(16)
		got := b.goAsk(t.Context(), askFor(1))
		synctest.Wait()
		b.close()
		assert.ErrorIs(t, (<-got).err, ErrClosed)
	})
	bubble(t, "a job that left is granted by the transaction under way", func(t *testing.T) {
		d := &fakeDatabase{took: time.Second, answer: func(*request) decision { return decision{granted: true, leased: true} }}
		b := d.batcher(16)
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		got := b.goAsk(ctx, askFor(1))
		time.Sleep(linger)
		synctest.Wait()
		go b.close()
		assert.Error(t, (<-got).err)
		<-b.done
		require.Len(t, d.seen(), 2)
		assert.Equal(t, []int64{1}, d.seen()[1].releases)
	})
	bubble(t, "while the database is away", func(t *testing.T) {
		d := &fakeDatabase{fail: func(int) error { return errDatabase }}
		b := d.batcher(16)
		b.release(release{})
		time.Sleep(10*time.Second + time.Millisecond)
		began := time.Since(start0)
		b.close()
		assert.LessOrEqual(t, time.Since(start0)-began, time.Second, "it does not wait for the database to come back")
	})
	bubble(t, "with nothing to do", func(t *testing.T) {
		d := &fakeDatabase{}
		b := d.batcher(16)
		b.close()
		b.close()
		assert.Empty(t, d.seen())
	})
}

// A hook of the pool that panics blocks no caller, and the next transactions work as before.
func TestBatcher_HooksThatPanic(t *testing.T) {
	before := slog.Default()
	slog.SetDefault(slog.New(slog.DiscardHandler))
	t.Cleanup(func() { slog.SetDefault(before) })
	synctest.Test(t, func(t *testing.T) {
		d := &fakeDatabase{fail: func(int) error { panic("a hook") }}
		b := d.batcher(16)
		for job := range int64(3) {
			b.release(release{run: runID{job: job}})
			_, err := b.decide(t.Context(), askFor(job))
			assert.Equal(t, errPanic, err)
		}
		time.Sleep(time.Minute)
		assert.Less(t, len(d.seen()), 100, "it pauses between")
		d.change(func() { d.fail = nil })
		result, err := b.decide(t.Context(), askFor(9))
		require.NoError(t, err)
		assert.True(t, result.granted)
		assert.Equal(t, []int64{0, 1, 2}, d.seen()[0].releases, "kept")
		b.close()
	})
}

// Many requests at once, with contexts that end and slots that are released meanwhile.
func TestBatcher_ConcurrentSafe(t *testing.T) {
	var holds atomic.Int64
	do := func(_ context.Context, reqs []*request, releases []release, room int) error {
		runtime.Gosched()
		holds.Add(-int64(len(releases)))
		for _, req := range reqs {
			switch {
			case req.job%7 == 0:
				req.decision = decision{}
			case holds.Load() < 5:
				holds.Add(1)
				req.decision = decision{granted: true, leased: true, heldRows: 1, contended: []int64{req.needs[0].id}}
			default:
				req.decision = decision{inWorker: room > 0, expectedWait: ms}
				room--
			}
		}
		return nil
	}
	b := newBatcher(time.Second, 16, do, func(err error) { assert.NoError(t, err) })
	var wg sync.WaitGroup
	for g := range int64(40) {
		wg.Go(func() {
			for i := range int64(40) {
				ctx, cancel := context.WithCancel(context.Background())
				req := askFor(g*100+i, i%3)
				if i%5 == 0 {
					go cancel()
				}
				result, err := b.decide(ctx, req)
				if err == nil && result.granted {
					b.release(req.newRelease(result))
				}
				cancel()
			}
		})
	}
	wg.Wait()
	b.close()
	assert.Zero(t, holds.Load(), "all that was granted was released")
	_, err := b.decide(t.Context(), askFor(1))
	assert.ErrorIs(t, err, ErrClosed)
}

// Jobs ask and the batcher is closed at the same time: each gets an answer.
func TestBatcher_CloseConcurrentSafe(t *testing.T) {
	for range 50 {
		b := newBatcher(time.Second, 16, func(_ context.Context, reqs []*request, _ []release, _ int) error {
			for _, req := range reqs {
				req.decision = decision{granted: req.job%2 == 0, inWorker: req.job%2 != 0, expectedWait: ms}
			}
			return nil
		}, func(error) {})
		var wg sync.WaitGroup
		for job := range int64(20) {
			wg.Go(func() {
				result, err := b.decide(context.Background(), askFor(job, 1))
				assert.True(t, err == nil && result.granted || errors.Is(err, ErrClosed), "%v", err)
			})
		}
		wg.Go(b.close)
		wg.Wait()
	}
}
