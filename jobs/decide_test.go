package jobs

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/jobs/internal/window"
)

const hour = 3600 * second

func granted(reqs ...*request) (jobs []int64) {
	for _, req := range reqs {
		if req.decision.granted {
			jobs = append(jobs, req.job)
		}
	}
	return jobs
}

func TestDecide_AllOrNothing(t *testing.T) {
	m := newMemory(t)
	m.set(Definition{FixedWindow: "full", Limit: 1, Interval: time.Hour})
	m.set(Definition{SlidingWindow: "roomy", Limit: 100, Interval: time.Hour, Buckets: 60})
	m.set(Definition{Semaphore: "s", MaxCount: 5})
	m.set(Definition{DynamicWindow: "d", Interval: time.Hour, Capacity: 20})
	m.ask(1, m.fixed("full"))
	needs := []need{m.mutex("m"), m.semaphore("s"), m.fixed("full"), m.sliding("roomy"), m.dynamic("d", "k")}
	var rows []string
	for i := range needs { // whatever the order of the limits
		needs = append(needs[1:], needs[0])
		req := m.ask(2, needs...)
		require.False(t, req.decision.granted)
		assert.Equal(t, Ref{Type: FixedWindow, Name: "full"}, req.decision.limiter)
		assert.Equal(t, m.now+hour, req.decision.wake)
		assert.Empty(t, m.holders)
		assert.Len(t, m.waiters, 1, "it waits for what refused it only")
		for _, key := range m.keys {
			if key.ref.Name != "full" {
				assert.Empty(t, key.state, "%v", key.ref)
				assert.Zero(t, key.waiting, "%v", key.ref)
			}
		}
		if i == 0 {
			rows = m.describe()
		}
		assert.Equal(t, rows, m.describe())
		m.check()
	}
	m.now += hour
	req := m.ask(2, needs...)
	assert.True(t, req.decision.granted)
	assert.Len(t, m.holders, 2)
	assert.Empty(t, m.waiters)
	assert.Equal(t, 2, req.decision.heldRows)
	m.check()
}

func TestDecide_InOrderOfJobIDs(t *testing.T) {
	for seed := range uint64(20) {
		rnd := rand.New(rand.NewPCG(seed, 7))
		m := newMemory(t)
		m.set(Definition{Semaphore: "s", MaxCount: 3})
		m.set(Definition{FixedWindow: "w", Limit: 7, Interval: time.Minute})
		var reqs []*request
		for _, id := range rnd.Perm(20) {
			reqs = append(reqs, m.job(int64(id+1), m.semaphore("s")), m.job(int64(id+101), m.fixed("w")))
		}
		m.decide(reqs...)
		slices.SortFunc(reqs, func(x, y *request) int { return int(x.job - y.job) })
		assert.Equal(t, []int64{1, 2, 3, 101, 102, 103, 104, 105, 106, 107}, granted(reqs...))
		wake, fence := int64(0), int64(0)
		for _, req := range reqs[3:20] {
			assert.GreaterOrEqual(t, req.decision.wake, wake, "job %d comes back after those before it", req.job)
			wake = req.decision.wake
		}
		for _, req := range reqs {
			if req.decision.granted {
				assert.Greater(t, req.decision.fence, fence)
				fence = req.decision.fence
			}
		}
		for i, req := range reqs[27:] {
			assert.Equal(t, m.now+(1+int64(i/7))*60*second, req.decision.wake, "job %d", req.job)
		}
		m.check()
	}
}

func TestDecide_ReentryByOwner(t *testing.T) {
	m := newMemory(t)
	m.set(Definition{Semaphore: "s", MaxCount: 2})
	batch := m.semaphore("s")
	batch.owner = ownerOf(0, "batch")
	one, two, third := m.job(5, batch), m.job(6, batch), m.job(7, m.semaphore("s"))
	third.strict = true
	m.decide(one, two, third)
	assert.Equal(t, []int64{5, 6, 7}, granted(one, two, third), "jobs of one owner share a slot")
	waits := m.ask(4, m.semaphore("s"))
	require.False(t, waits.decision.granted)

	m.set(Definition{Semaphore: "s", MaxCount: 1}) // lowered below what is held
	m.now++
	again, another := m.job(7, m.semaphore("s")), m.job(8, batch)
	again.strict = true
	m.decide(again, another)
	assert.Equal(t, []int64{7, 8}, granted(again, another), "what holds a slot is let in, with others waiting that come before")
	assert.Len(t, m.holders, 4)
	for s, h := range m.holders {
		if s.Job == 7 {
			assert.Equal(t, again.attempted, h.Attempted, "the row is the new run's")
			assert.Equal(t, m.now-1, h.acquired, "and the slot is as old as it was")
		}
	}

	m.set(Definition{Semaphore: "s", MaxCount: 2})
	m.end(again, true)
	m.now += second
	waits = m.ask(4, m.semaphore("s"))
	assert.True(t, waits.decision.granted)
	m.check()
}

// Both in one batch: the release of an owner and the next owner's acquire.
func TestDecide_ReleaseAndAcquireInOneBatch(t *testing.T) {
	m := newMemory(t)
	a, b := m.mutex("m"), m.mutex("m")
	a.owner, a.mode, b.owner, b.mode = ownerOf(0, "a"), Acquire, ownerOf(0, "b"), Acquire
	first := m.ask(1, a)
	m.end(first, true)
	a.mode = Release
	release, next := m.job(2, a), m.job(3, b)
	m.decide(next, release)
	assert.Equal(t, []int64{2}, granted(release, next))
	a.mode = Acquire
	again := m.ask(4, a)
	assert.True(t, again.decision.granted, "the owner takes it again while the job that releases it runs")
	m.end(release, true)
	assert.Len(t, m.holders, 1)
	assert.EqualValues(t, keptRow, m.holders[holderID{1, "owner a", 4}].Mode)
	m.check()
}

// A job that is declared otherwise while it waits leaves no place behind, whether it is granted or throttled again.
func TestDecide_OtherLimits(t *testing.T) {
	m := newMemory(t)
	m.set(Definition{FixedWindow: "w", Limit: 1, Interval: time.Minute})
	m.ask(1, m.mutex("m"), m.fixed("w"), m.mutex("now"))
	for _, needs := range [][]need{{m.mutex("other")}, {m.mutex("now")}} {
		m.ask(2, m.mutex("m"), m.fixed("w"))
		require.Len(t, m.waiters, 2)
		again := m.ask(2, needs...)
		if again.decision.granted {
			assert.Empty(t, m.waiters)
			continue
		}
		require.Len(t, m.waiters, 1)
		assert.Contains(t, m.waiters, waiterID{m.id(Ref{Type: Mutex, Name: "now"}), 2})
	}
}

func TestDecide_Reservations(t *testing.T) {
	m := newMemory(t)
	m.set(Definition{SlidingWindow: "w", Limit: 2, Interval: time.Minute, Buckets: 6})
	var reqs []*request
	for id := range int64(7) {
		reqs = append(reqs, m.job(id+1, m.sliding("w")))
	}
	m.decide(reqs...)
	assert.Equal(t, []int64{1, 2}, granted(reqs...))
	for i, minutes := range []int64{1, 1, 2, 2, 3} {
		assert.Equal(t, m.now+minutes*60*second, reqs[i+2].decision.wake)
	}
	m.check()
	rows := m.describe()
	m.decide(m.job(5, m.sliding("w")), m.job(3, m.sliding("w")))
	assert.Equal(t, rows, m.describe(), "who comes too early keeps its place")
	m.check()

	m.now += 60 * second
	newcomer := m.ask(8, m.sliding("w"))
	assert.False(t, newcomer.decision.granted, "the places are taken")
	assert.Equal(t, m.now+120*second, newcomer.decision.wake)
	late := m.ask(3, m.sliding("w"))
	assert.True(t, late.decision.granted)
	m.now += 30 * second // 4 comes late: its place was in a bucket that has passed
	late = m.ask(4, m.sliding("w"))
	assert.True(t, late.decision.granted)
	m.now += 30 * second
	req, b := m.job(5, m.sliding("w")), m.job(6, m.sliding("w"))
	m.decide(b, req)
	assert.Equal(t, []int64{5}, granted(req, b), "checked again at the start: 4 is in the window still")
	m.check()
}

// If the reservation of a job is due and a mutex refuses the job, the job keeps its reservation.
func TestDecide_KeepsReservation(t *testing.T) {
	m := newMemory(t)
	m.set(Definition{FixedWindow: "w", Limit: 1, Interval: time.Hour})
	decide := func(jobs ...int64) []int64 {
		var reqs []*request
		for _, id := range jobs {
			needs := []need{m.fixed("w")}
			if id == 1 {
				needs = append(needs, m.mutex("m"))
			}
			reqs = append(reqs, m.job(id, needs...))
		}
		m.decide(reqs...)
		m.check()
		return granted(reqs...)
	}
	holder := m.job(100, m.mutex("m"))
	holder.strict = true
	m.decide(holder)
	require.Equal(t, []int64{9}, decide(9))
	require.Empty(t, decide(1, 2, 3, 4))
	m.now += hour
	require.Equal(t, []int64{10}, decide(1, 10), "the place of job 1 is for another")
	m.now += hour
	m.end(holder, true)
	require.Equal(t, []int64{1}, decide(1))
	require.Empty(t, decide(2))
}

func TestDecide_TooFarAhead(t *testing.T) {
	m := newMemory(t)
	m.set(Definition{FixedWindow: "w", Limit: 1, Interval: time.Second})
	var reqs []*request
	for id := range int64(1200) {
		reqs = append(reqs, m.job(id+1, m.fixed("w")))
	}
	m.decide(reqs...)
	m.check()
	reserved := 0
	for p, w := range m.waiters {
		if w.Bucket >= 0 {
			reserved++
		} else {
			assert.Greater(t, p.Job, int64(window.MaxAhead))
		}
		assert.GreaterOrEqual(t, w.Wake, m.now+min(p.Job-1, window.MaxAhead)*second, "job %d", p.Job)
		assert.LessOrEqual(t, w.Wake, m.now+(window.MaxAhead+1)*second, "job %d", p.Job)
	}
	assert.Equal(t, window.MaxAhead, reserved)
	assert.Len(t, m.waiters, 1199)
	m.now += 600 * second
	m.ask(1200, m.fixed("w"))
	assert.GreaterOrEqual(t, m.waiters[waiterID{1, 1200}].Bucket, int64(0), "it has a place when it asks again")
	m.check()
}

func TestDecide_HandOver(t *testing.T) {
	m := newMemory(t)
	m.room = 2
	m.set(Definition{FixedWindow: "w", Limit: 1, Interval: time.Minute})
	m.ask(1, m.mutex("m"), m.fixed("w"))
	asks := func(id, stays int64, needs ...need) *request {
		req := m.job(id, needs...)
		req.handOver = stays
		return req
	}
	short, long, window, both := asks(2, 1, m.mutex("m")), asks(3, second, m.mutex("m")), asks(4, second, m.fixed("w")), asks(5, second, m.mutex("m"), m.fixed("w"))
	delayed := asks(6, second, m.mutex("m"))
	delayed.minDelay = 1
	leaves := asks(7, 0, m.mutex("m"))
	m.decide(short, long, window, both, delayed, leaves)
	for _, a := range []*struct {
		name string
		*request
		want bool
	}{{"its turn is too far", short, false}, {"near", long, true}, {"a window", window, false}, {"a window too", both, false}, {"with a minimum delay", delayed, false}, {"turned off", leaves, false}} {
		assert.Equal(t, a.want, a.decision.inWorker, a.name)
	}
	assert.Equal(t, m.now, long.decision.wake)
	assert.Positive(t, long.decision.expectedWait)
	m.check()
	assert.True(t, m.waiters[waiterID{1, 3}].InWorker)

	m.now += inWorkerFor/2 - 1
	rows := m.describe()
	m.decide(asks(3, second, m.mutex("m")))
	assert.Equal(t, rows, m.describe(), "it said so not long ago")
	m.now++
	m.decide(asks(3, second, m.mutex("m")))
	assert.Equal(t, m.now, m.waiters[waiterID{1, 3}].Wake, "it says so again")

	m.room = 1
	req, b := asks(8, 100*second, m.mutex("m")), asks(9, 100*second, m.mutex("m"))
	m.decide(b, req)
	assert.True(t, req.decision.inWorker)
	assert.False(t, b.decision.inWorker, "no room for more")
}

// One job with two keys of one dynamic window.
func TestDecide_TwoKeysOfADynamicWindow(t *testing.T) {
	m := newMemory(t)
	m.set(Definition{DynamicWindow: "d", Interval: time.Minute, Capacity: 3})
	req := m.ask(1, m.dynamic("d", "a"), m.dynamic("d", "b"))
	assert.True(t, req.decision.granted)
	b := m.ask(2, m.dynamic("d", "a"), m.dynamic("d", "b"))
	assert.False(t, b.decision.granted, "four would be more than the capacity")
	assert.Equal(t, m.now+60*second, b.decision.wake)
	m.check()
	m.now += 60 * second
	b = m.ask(2, m.dynamic("d", "a"), m.dynamic("d", "b"))
	assert.True(t, b.decision.granted)
	m.check()

	m.set(Definition{DynamicWindow: "one", Interval: time.Minute, Capacity: 1})
	c := m.ask(3, m.dynamic("one", "a"), m.dynamic("one", "b"))
	assert.False(t, c.decision.granted, "never")
}

// A job asks twice in one batch: a run that was rescued, and its next one.
func TestDecide_TheSameJobTwice(t *testing.T) {
	m := newMemory(t)
	m.set(Definition{FixedWindow: "w", Limit: 1, Interval: time.Minute})
	req, b := m.job(1, m.mutex("m")), m.job(1, m.mutex("m"))
	m.decide(req, b)
	assert.Len(t, m.holders, 1)
	m.ask(2, m.fixed("w"))
	c, d := m.job(3, m.fixed("w"), m.mutex("m")), m.job(3, m.fixed("w"), m.mutex("m"))
	m.decide(c, d)
	assert.Len(t, m.waiters, 2)
	m.check()
}

// Random jobs with random limits, which change, on a clock that goes on by random steps: after every transaction the counts and the
// reservations are what the jobs have, nothing is held by more than may, and no window has too many.
func TestDecide_Random(t *testing.T) {
	for seed := range uint64(6) {
		rnd := rand.New(rand.NewPCG(seed, 8))
		m, changes := newMemory(t), seed%2 == 1
		m.set(Definition{Semaphore: "s", MaxCount: 3})
		m.set(Definition{FixedWindow: "f", Limit: 4, Interval: 5 * time.Second})
		m.set(Definition{SlidingWindow: "w", Limit: 3, Interval: 6 * time.Second, Buckets: 3})
		m.set(Definition{DynamicWindow: "d", Interval: 4 * time.Second, Buckets: 2, Capacity: 6, MinLimit: 2})
		change := func() {
			m.changed = true
			buckets := 1 + rnd.IntN(5)
			interval := time.Duration(buckets) * []time.Duration{time.Second, 1500 * time.Millisecond, 7 * time.Second, time.Minute}[rnd.IntN(4)]
			m.set(Definition{FixedWindow: "f", Limit: 1 + rnd.IntN(9), Interval: interval})
			m.set(Definition{SlidingWindow: "w", Limit: 1 + rnd.IntN(9), Interval: interval, Buckets: buckets})
			m.set(Definition{DynamicWindow: "d", Interval: interval, Buckets: buckets, Capacity: 2 + rnd.IntN(9), MinLimit: 1 + rnd.IntN(2)})
		}
		m.room = 2
		var needsOf [31][]need
		for id := range needsOf {
			key := rnd.IntN(4)
			all := []need{m.mutex(fmt.Sprint("m", rnd.IntN(2))), m.semaphore("s"), m.fixed("f"), m.sliding("w"),
				m.dynamic("d", fmt.Sprint("k", key)), m.dynamic("d", fmt.Sprint("k", (key+1)%4))}
			rnd.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
			needsOf[id] = all[:1+rnd.IntN(3)]
		}
		running := map[int64]*request{}
		type begun struct {
			ref Ref
			at  int64
		}
		var starts []begun
		done := 0
		for step := range 200 {
			if m.now += rnd.Int64N(second / 2); changes && step == 80 {
				change()
			}
			for _, id := range slices.Sorted(maps.Keys(running)) {
				if rnd.IntN(3) == 0 {
					m.end(running[id], true)
					delete(running, id)
					done++
				}
			}
			var reqs []*request
			for id := range int64(len(needsOf)) {
				if running[id] != nil || rnd.IntN(4) > 0 {
					continue
				}
				req := m.job(id, needsOf[id]...)
				req.strict, req.snoozes, req.handOver = rnd.IntN(4) == 0, rnd.IntN(6) > 0, rnd.Int64N(2)*second
				req.minDelay = rnd.Int64N(2) * rnd.Int64N(3*second)
				reqs = append(reqs, req)
			}
			m.decide(reqs...)
			for _, req := range reqs {
				if !req.decision.granted {
					require.NotEmpty(t, req.decision.limiter.Name)
					require.GreaterOrEqual(t, req.decision.wake, m.now)
					if req.snoozes {
						require.GreaterOrEqual(t, req.decision.wake, m.now+req.minDelay)
						require.False(t, req.decision.inWorker && req.minDelay > 0, "it leaves its worker")
					}
					for id := range m.waiters {
						require.True(t, id.Job != req.job || req.snoozes, "a job that is cancelled reserves nothing")
					}
					delete(m.running, req.job)
					continue
				}
				running[req.job] = req
				for _, n := range req.needs {
					if !n.ref.Type.hasSlots() {
						starts = append(starts, begun{n.ref, m.now / m.rulesOf(n.ref).window.Bucket})
					}
				}
			}
			m.check()
			if changes { // executions in other buckets do not count for as long as in these
				continue
			}
			counted := map[Ref]int64{}
			starts = slices.DeleteFunc(starts, func(s begun) bool {
				r := m.rulesOf(s.ref).window
				return s.at <= m.now/r.Bucket-r.Buckets
			})
			for _, s := range starts {
				counted[Ref{Type: s.ref.Type, Name: s.ref.Name}]++
				if s.ref.Key != "" {
					counted[s.ref]++
				}
			}
			for ref, most := range map[Ref]int64{{Type: FixedWindow, Name: "f"}: 4, {Type: SlidingWindow, Name: "w"}: 3, {Type: DynamicWindow, Name: "d"}: 6} {
				require.LessOrEqual(t, counted[ref], most, "seed %d", seed)
			}
			for _, key := range m.keys {
				if key.ref.Type == DynamicWindow && key.ref.Key != "" {
					w := mustRead(t, key.state, m.rulesOf(key.ref).window, m.now)
					require.Equal(t, counted[key.ref], w.Started(), "seed %d: %v", seed, key.ref)
				}
			}
		}
		require.Greater(t, done, 50)
	}
}
