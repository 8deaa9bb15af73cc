package jobs

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// now is the time of slots in tests.
const now = 1000 * second

// slotsOf makes the state of a semaphore that jobs 1001, 1002, … have held since some times.
func slotsOf(limit, hold int64, since ...int64) *slots {
	s := &slots{now: now, limit: limit, measuredHold: hold, owners: map[string]int64{}}
	for i, at := range since {
		s.owners[ownerOf(int64(1001+i), "")] = at
	}
	return s
}

func (s *slots) with(waiters ...waiter) *slots {
	for _, w := range waiters {
		s.add(w)
	}
	s.waiting = int64(len(s.waiters))
	return s
}

func waits(job, wake int64) waiter { return waiter{waiterID: waiterID{Job: job}, Wake: wake} }

func inWorker(job, wake int64) waiter {
	return waiter{waiterID: waiterID{Job: job}, Wake: wake, InWorker: true}
}

func TestSlots_Admits(t *testing.T) {
	const hold = int64(200 * ms)
	for _, c := range []struct {
		name string
		s    *slots
		want bool
	}{
		{"free", slotsOf(1, hold), true},
		{"held", slotsOf(1, hold, now), false},
		{"held for much too long", slotsOf(1, hold, 0), false},
		{"one of two", slotsOf(2, hold, now), true},
		{"more than there are", slotsOf(1, hold, now, now, now), false},
		{"one before it waits in its worker", slotsOf(1, hold).with(inWorker(4, now-inWorkerFor)), false},
		{"waited in its worker", slotsOf(1, hold).with(inWorker(4, now-inWorkerFor-1)), true},
		{"one before it, and there are two", slotsOf(2, hold).with(inWorker(4, now)), true},
		{"two before it, and there are two", slotsOf(2, hold).with(inWorker(4, now), inWorker(3, now)), false},
		{"one behind it", slotsOf(1, hold).with(inWorker(6, now)), true},
		{"one before it is snoozed", slotsOf(1, hold).with(waits(4, now)), true},
	} {
		assert.Equal(t, c.want, c.s.admits("job 5", 5), c.name)
	}
	assert.True(t, slotsOf(1, hold, now, now).with(inWorker(4, now)).admits("job 1001", 1001), "it holds one")
}

func TestSlots_LearnHold(t *testing.T) {
	s := slotsOf(1, 0)
	s.learnHold(800)
	assert.EqualValues(t, 800, s.measuredHold, "the first is the mean")
	assert.True(t, s.changed)
	s.learnHold(1600)
	assert.EqualValues(t, 900, s.measuredHold)
	for range 100 {
		s.learnHold(10_000)
	}
	assert.InDelta(t, 10_000, s.measuredHold, 10)
	for _, held := range []int64{-5, math.MaxInt64, math.MaxInt64, math.MinInt64} {
		s.learnHold(held)
		assert.Positive(t, s.measuredHold)
	}
}

func TestSlots_ExpectedWait(t *testing.T) {
	const hold = int64(80 * ms)
	ahead := func(n int) (ws []waiter) {
		for i := range n {
			ws = append(ws, waits(int64(i), now+second))
		}
		return ws
	}
	for _, c := range []struct {
		name string
		s    *slots
		want int64
	}{
		{"just taken", slotsOf(1, hold, now), hold},
		{"half over", slotsOf(1, hold, now-hold/2), hold / 2},
		{"over", slotsOf(1, hold, now-hold), hold / 8},
		{"long over", slotsOf(1, hold, 0), now - hold + hold/8},
		{"one of two long over", slotsOf(2, hold, 0, now).with(ahead(1)...), 2 * hold},
		{"the first of two to end", slotsOf(2, hold, now, now-hold/2), hold / 2},
		{"three ahead", slotsOf(1, hold, now).with(ahead(3)...), 4 * hold},
		{"three ahead, two slots", slotsOf(2, hold, now, now-hold/2).with(ahead(3)...), 2 * hold},
		{"a free one, and one ahead", slotsOf(1, hold).with(ahead(1)...), hold},
		{"one more than there are", slotsOf(1, hold, now, now-hold/2), hold},
		{"two more than there are, one ahead", slotsOf(2, hold, now, now-hold/4, now-hold/2, now-hold*3/4).with(ahead(1)...), hold},
		{"those behind do not count", slotsOf(1, hold, now).with(waits(5000, now)), hold},
		{"a waiter that is late counts", slotsOf(1, hold, now).with(waits(1, now-gracePeriod)), 2 * hold},
		{"waiters that do not come do not count", slotsOf(1, hold, now).with(waits(1, now-gracePeriod-1)), hold},
		{"nothing known", slotsOf(1, 0, now), initialHold},
		{"nothing known but that it is held", slotsOf(1, 0, now-second), second},
		{"more than can be said", slotsOf(1, maxPeriod, now).with(ahead(1000)...), maxPeriod},
		{"a time of holding that cannot be", slotsOf(1, math.MaxInt64, now).with(ahead(5)...), maxPeriod},
		{"slots without end", slotsOf(maxCount, hold, now).with(ahead(1000)...), hold},
	} {
		assert.Equal(t, c.want, c.s.expectedWait(4000, true), c.name)
	}

	many := slotsOf(1, hold, now).with(ahead(maxWaiters)...)
	many.waiting = 5000
	assert.Equal(t, 5001*hold, many.expectedWait(4000, false), "behind all that were not read")
	assert.Equal(t, 1001*hold, many.expectedWait(4000, true), "it was among them, where is not known")
	assert.Equal(t, 501*hold, many.expectedWait(500, false), "before the last that was read")
}

// A job that comes later never has a turn before one that comes earlier, and no estimate is negative or beyond bounds.
func TestSlots_ExpectedWaitInOrder(t *testing.T) {
	for seed := range uint64(40) {
		rnd := rand.New(rand.NewPCG(seed, 10))
		s := slotsOf(1+rnd.Int64N(8), rnd.Int64N(2)*(1+rnd.Int64N(1<<rnd.IntN(62))))
		for i := range rnd.IntN(10) {
			s.owners[fmt.Sprint(i)] = now - rnd.Int64N(100*second)
		}
		for range rnd.IntN(30) {
			s.add(waiter{waiterID: waiterID{Job: rnd.Int64N(100)}, Wake: now - 5*second + rnd.Int64N(60*second), InWorker: rnd.IntN(4) == 0})
		}
		s.waiting = int64(len(s.waiters))
		last := int64(0)
		for job := range int64(101) {
			turn := s.expectedWait(job, rnd.IntN(2) == 0)
			require.GreaterOrEqual(t, turn, last, "seed %d, job %d", seed, job)
			require.LessOrEqual(t, turn, maxPeriod)
			last = turn
		}
		last = 0
		for ahead := range int64(100) {
			turn := s.waitBehind(ahead)
			require.GreaterOrEqual(t, turn, last, "seed %d, behind %d", seed, ahead)
			last = turn
		}
		if s.admits("x", 50) {
			require.Less(t, int64(len(s.owners)), s.limit)
		}
	}
}

// What was computed for the slots is computed again when they change.
func TestSlots_ExpectedWaitAfterChanges(t *testing.T) {
	const hold = int64(80 * ms)
	s := slotsOf(2, hold)
	assert.Zero(t, s.waitBehind(0))
	s.take("a")
	s.take("b")
	assert.Equal(t, hold, s.waitBehind(0))
	s.learnHold(hold + 8*ms)
	assert.Equal(t, hold+ms, s.waitBehind(0))
	s.now += second
	s.take("a")
	assert.Equal(t, now, s.owners["a"], "held since it was taken first")
}

func TestSlots_ToBringBack(t *testing.T) {
	const hold = 40 * ms
	s := slotsOf(1, hold, now)
	for i := range int64(30) {
		s.add(waits(i, now+second))
	}
	jobs := func(next []waiter) (ids []int64) {
		for _, w := range next {
			ids = append(ids, w.Job)
		}
		return ids
	}
	assert.Equal(t, []int64{0, 1}, jobs(s.toBringBack()), "whose turn is within 100 ms")
	s.waiters[0].InWorker = true
	assert.Equal(t, []int64{1}, jobs(s.toBringBack()))
	s.waiters[1].Earliest = now + 1
	assert.Equal(t, []int64{2}, jobs(s.toBringBack()), "a job with a MinDelay keeps no other from coming")
	s.waiters[0].Wake, s.waiters[0].InWorker, s.waiters[2].Wake = now, false, now+100*ms
	assert.Empty(t, s.toBringBack(), "they come by themselves")
	assert.Empty(t, slotsOf(1, hold).toBringBack())

	free := slotsOf(1, second)
	for i := range int64(50) {
		free.add(waits(i, now+second))
	}
	assert.Equal(t, []int64{0}, jobs(free.toBringBack()), "the slot is free")
	free.waiters[0].Wake = now - gracePeriod - 1
	assert.Len(t, free.toBringBack(), maxBroughtBack+1, "and the first does not come")
	free.waiters[0].Wake = now - 4*gracePeriod - 1
	assert.Equal(t, []int64{1}, jobs(free.toBringBack()), "which was long ago")
}

// A holder that takes much longer than others did, or of which nothing is known but how long it has held its slot, is expected
// to take longer the longer it takes: the job that waits for it asks seldom.
func TestSlots_SlowHolder(t *testing.T) {
	for hold, most := range map[int64]int{0: 16, 10 * ms: 30} {
		asks := 0
		for at := int64(ms); at < 60*second; asks++ {
			s := slotsOf(1, hold, 0)
			s.now = at
			at += max(s.expectedWait(1, true), ms)
		}
		assert.LessOrEqual(t, asks, most)
	}
}

// A simulation is a River client with many workers on the clock of a memory: it polls, brings jobs back at the end of their
// snooze, and lets jobs wait in their workers if they may.
type simulation struct {
	*memory
	poll, hold int64
	workers    int
	scheduled  map[int64]int64
	inWorkers  []*request
	running    []*request
	ends       map[*request]int64
	needs      func(job int64) []need
	begun      []int64
	runs       int
	paused     func(job int64) bool // nil: none; of jobs whose queue is paused
	waitFor    need                 // if it is set, rechecked each second and when it is released
}

func (s *simulation) ask(reqs []*request) {
	if len(reqs) == 0 {
		return
	}
	s.room = max(16-len(s.inWorkers), 0)
	for _, req := range reqs {
		req.handOver = second
	}
	s.decide(reqs...)
	for _, req := range reqs {
		switch {
		case req.decision.granted:
			s.begun = append(s.begun, req.job)
			s.running = append(s.running, req)
			s.ends[req] = s.now + s.hold
		case req.decision.inWorker:
			s.inWorkers = append(s.inWorkers, req)
		default:
			delete(s.memory.running, req.job)
			s.scheduled[req.job] = req.decision.wake
		}
	}
	s.takeBroughtBack()
}

func (s *simulation) takeBroughtBack() {
	for _, job := range s.broughtBack {
		if _, ok := s.scheduled[job]; ok {
			s.scheduled[job] = s.now
		}
	}
	s.broughtBack = nil
}

const tick = 5 * ms

// step goes on by one tick.
func (s *simulation) step() {
	s.now += tick
	ended := false
	s.running = slices.DeleteFunc(s.running, func(req *request) bool {
		if s.now < s.ends[req] {
			return false
		}
		s.end(req, true)
		ended = true
		return true
	})
	if len(s.inWorkers) > 0 && (ended || s.now%(50*ms) == 0) {
		reqs := s.inWorkers
		s.inWorkers = nil
		s.ask(reqs)
	}
	if s.waitFor.ref.Name != "" && (ended || s.now%second == 0) {
		s.recheck(s.waitFor)
		s.takeBroughtBack()
	}
	if s.now%s.poll != 0 {
		return
	}
	var jobs []int64
	for job, at := range s.scheduled {
		if at <= s.now && (s.paused == nil || !s.paused(job)) {
			jobs = append(jobs, job)
		}
	}
	slices.SortFunc(jobs, func(a, b int64) int {
		if s.scheduled[a] != s.scheduled[b] {
			return int(s.scheduled[a] - s.scheduled[b])
		}
		return int(a - b)
	})
	var reqs []*request
	for _, job := range jobs[:min(len(jobs), max(s.workers-len(s.running)-len(s.inWorkers), 0))] {
		delete(s.scheduled, job)
		s.runs++
		reqs = append(reqs, s.job(job, s.needs(job)...))
	}
	s.ask(reqs)
}

func newSimulation(t *testing.T, jobs int, poll, hold int64, needs func(job int64) []need) *simulation {
	s := &simulation{memory: newMemory(t), poll: poll, hold: hold, workers: 200, scheduled: map[int64]int64{}, ends: map[*request]int64{}, needs: needs}
	for job := range int64(jobs) {
		s.scheduled[job+1] = s.now
	}
	return s
}

// Many jobs as River runs them: all of them are done in about the time that the narrowest limit takes, in few runs and nearly
// in order, with never too many at once. If jobs are much shorter than River's poll interval, more than a second of it passes
// between two jobs that are brought back.
func TestDecide_ManyJobs(t *testing.T) {
	keyed := func(n need, key int64) need {
		n.ref.Key = fmt.Sprint(key)
		return n
	}
	mutex := func(m *memory, _ int64) []need { return []need{m.mutex("m")} }
	for _, c := range []struct {
		name              string
		jobs              int
		hold, poll, ideal int64
		needs             func(m *memory, job int64) []need
		times             float64 // of the ideal
		runs              float64 // a job
		inOrder           bool
	}{
		{"a mutex", 400, 10 * ms, 100 * ms, 4 * second, mutex, 1.5, 3, true},
		{"a mutex, poll 1s", 100, 10 * ms, second, second, mutex, 7, 8, true},
		{"a mutex, jobs of 1s, poll 1s", 20, second, second, 20 * second, mutex, 1.2, 4, true},
		{"a semaphore", 300, 300 * ms, 100 * ms, 4500 * ms, func(m *memory, _ int64) []need { return []need{m.semaphore("s")} }, 1.2, 3.5, true},
		{"a fixed window", 200, ms, 100 * ms, 4 * second, func(m *memory, _ int64) []need { return []need{m.fixed("w")} }, 1.03, 2, true},
		{"a sliding window", 200, ms, 100 * ms, 4 * second, func(m *memory, _ int64) []need { return []need{m.sliding("w")} }, 1.03, 2, true},
		{"a mutex and a window", 100, 10 * ms, 100 * ms, 2500 * ms, func(m *memory, _ int64) []need {
			return []need{m.mutex("m"), m.fixed("w")}
		}, 1.1, 5, false},
		{"twenty mutexes and a window", 100, 100 * ms, 100 * ms, 2500 * ms, func(m *memory, job int64) []need {
			return []need{keyed(m.mutex("m"), job%20), m.fixed("w")}
		}, 1.1, 5, false},
		{"ten mutexes and a semaphore", 150, 50 * ms, 100 * ms, 750 * ms, func(m *memory, job int64) []need {
			return []need{keyed(m.mutex("m"), job%10), m.semaphore("s")}
		}, 2, 5, false},
		{"two windows", 200, ms, 100 * ms, 60 * second, func(m *memory, _ int64) []need {
			return []need{m.fixed("minute"), m.fixed("tenth")}
		}, 1.3, 5, false},
		{"two of ten mutexes, each between two", 150, 10 * ms, 100 * ms, 300 * ms, func(m *memory, job int64) []need {
			return []need{keyed(m.mutex("fork"), job%10), keyed(m.mutex("fork"), (job+1)%10)}
		}, 4, 6, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newSimulation(t, c.jobs, c.poll, c.hold, nil)
			s.set(Definition{FixedWindow: "w", Limit: 40, Interval: time.Second})
			s.set(Definition{SlidingWindow: "w", Limit: 120, Interval: 3 * time.Second, Buckets: 3})
			s.set(Definition{FixedWindow: "minute", Limit: 100, Interval: time.Minute})
			s.set(Definition{FixedWindow: "tenth", Limit: 10, Interval: time.Second})
			s.set(Definition{Semaphore: "s", MaxCount: 20})
			s.needs = func(job int64) []need { return c.needs(s.memory, job) }
			began := s.now
			for len(s.begun) < c.jobs || len(s.running) > 0 {
				s.step()
				s.check()
				require.Less(t, s.now-began, 20*c.ideal)
			}
			inversions := 0
			for i := range s.begun[1:] {
				if s.begun[i] > s.begun[i+1] {
					inversions++
				}
			}
			if c.inOrder {
				assert.Less(t, inversions, max(c.jobs/20, 1))
			}
			s.measured(began, c.ideal, c.times, c.runs)
		})
	}
}

// Many jobs wait for a mutex, their queue is paused, and the holder ends. Jobs of another queue wait for one grace period,
// not for one after the other, whether they come later or have waited behind the others, and whether the others wait for a
// window, too.
func TestSlots_WaitersThatDoNotCome(t *testing.T) {
	const others = 30
	for _, c := range []struct {
		absent        int64
		early, window bool
	}{
		{1, false, false}, {1, true, false}, {20, false, false}, {20, true, false}, {60, false, false}, {60, true, false},
		{150, false, false}, {150, true, false}, {20, false, true}, {60, false, true}, {60, true, true},
	} {
		t.Run(fmt.Sprintf("%d, others wait with them: %v, a window: %v", c.absent, c.early, c.window), func(t *testing.T) {
			paused := false
			s := newSimulation(t, 0, 100*ms, 2500*ms, nil)
			s.set(Definition{FixedWindow: "w", Limit: 4, Interval: 2 * time.Second})
			s.waitFor = s.mutex("m")
			s.key(s.waitFor.ref).hold = s.hold
			s.paused = func(job int64) bool { return paused && job <= c.absent+1 }
			s.needs = func(job int64) []need {
				if c.window && job <= c.absent+1 {
					return []need{s.mutex("m"), s.fixed("w")}
				}
				return []need{s.mutex("m")}
			}
			add := func(first, jobs int64) {
				for i := range jobs {
					s.scheduled[first+i] = s.now
				}
			}
			until := func(at int64) {
				for s.now < at {
					s.step()
				}
			}
			began := s.now
			if c.window { // the first job takes its last place
				s.decide(s.job(9001, s.fixed("w")), s.job(9002, s.fixed("w")), s.job(9003, s.fixed("w")))
			}
			add(1, 1)
			until(began + 500*ms)
			add(2, c.absent)
			if c.early {
				until(began + 700*ms)
				add(10_000, others)
			}
			until(began + second)
			paused = true
			until(began + 2600*ms)
			require.Equal(t, []int64{1}, s.begun, "the holder has ended")
			s.hold = 50 * ms
			if !c.early {
				add(10_000, others)
			}
			ended := s.now
			for len(s.begun) < 1+others {
				s.step()
				require.Less(t, s.now-ended, 100*second)
			}
			t.Logf("%d jobs of 50 ms took %.1f s", others, float64(s.now-ended)/float64(second))
			for _, job := range s.begun[1:] {
				require.GreaterOrEqual(t, job, int64(10_000))
			}
			most := 2500*ms + second + others*100*ms
			if c.absent > maxBroughtBack { // found behind so many others, of which twice as many are tried each time
				most += 3 * 2500 * ms
			}
			assert.Less(t, s.now-ended, most)
			paused = false // and they all come when the queue goes on
			for len(s.begun) < int(1+others+c.absent) {
				s.step()
				require.Less(t, s.now-ended, 10_000*second)
			}
		})
	}
}

// measured compares the time and the runs that all jobs took.
func (s *simulation) measured(began, ideal int64, times, runs float64) {
	t := s.t
	took := float64(s.now-began) / float64(ideal)
	perJob := float64(s.runs) / float64(len(s.begun))
	t.Logf("%.2f of the ideal, %.2f runs a job", took, perJob)
	assert.LessOrEqual(t, took, times)
	assert.LessOrEqual(t, perJob, runs)
	assert.Empty(t, s.waiters)
	s.check()
}

// Three tenants with many jobs each on one dynamic window, which come while it runs: it is never exceeded, each has its
// part as long as it has jobs, and nothing is left unused.
func TestDynamicWindow_ManyJobs(t *testing.T) {
	const jobs = 420
	s := newSimulation(t, 0, 100*ms, ms, nil)
	s.set(Definition{DynamicWindow: "d", Interval: 2 * time.Second, Buckets: 2, Capacity: 20, MinLimit: 2})
	tenants := make(map[int64]string)
	s.needs = func(job int64) []need { return []need{s.dynamic("d", tenants[job])} }
	left := map[string]int{}
	add := func(tenant string, n int) {
		for range n {
			job := int64(len(tenants) + 1)
			tenants[job] = tenant
			s.scheduled[job] = s.now
		}
		left[tenant] += n
	}
	add("a", 200)
	began := s.now
	starts := map[int64]map[string]int{}
	least := map[string]int{}
	for len(s.begun) < jobs {
		switch (s.now - began) / ms {
		case 4500:
			add("b", 120)
		case 9700:
			add("c", 100)
		}
		before := len(s.begun)
		s.step()
		at := s.now / second
		if starts[at] == nil {
			starts[at] = map[string]int{}
		}
		for _, job := range s.begun[before:] {
			starts[at][tenants[job]]++
			left[tenants[job]]--
		}
		sum := 0
		for _, tenant := range []string{"a", "b", "c"} {
			sum += starts[at][tenant] + starts[at-1][tenant]
		}
		require.LessOrEqual(t, sum, 20)
		if (s.now+tick)%(2*second) == 0 && s.now-began > 16*second {
			for _, tenant := range []string{"a", "b", "c"} {
				if n := starts[at][tenant] + starts[at-1][tenant]; left[tenant] > 0 && (least[tenant] == 0 || n < least[tenant]) {
					least[tenant] = n
				}
			}
		}
		require.Less(t, s.now-began, 1000*second)
	}
	t.Logf("least in a window with three tenants: %v", least)
	s.measured(began, jobs/10*second, 1.1, 3)
	for _, tenant := range []string{"a", "b", "c"} {
		assert.GreaterOrEqual(t, least[tenant], 6, tenant)
	}
}

// More owners than waiters are read: the last slot is free, and then none.
func TestSlots_ManyOwners(t *testing.T) {
	for _, c := range []struct {
		owners, unread int
		free           bool
	}{{1999, 0, true}, {2000, 0, false}, {1000, 999, true}, {1000, 1000, false}, {0, 2000, false}} {
		s := slotsOf(2000, 60*second, slices.Repeat([]int64{now}, c.owners)...)
		s.otherOwners = int64(c.unread)
		s.with(waits(4, now+60*second))
		assert.Equal(t, c.free, s.expectedWait(3, false) == 0, c)
		assert.Equal(t, c.free, len(s.toBringBack()) == 1, c)
	}
}
