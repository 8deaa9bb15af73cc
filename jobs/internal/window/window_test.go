package window

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The bounds of jobs.Definition.
const (
	maxCount   = 1_000_000_000
	maxBuckets = 1000
	maxWindow  = 10 * 365 * 24 * time.Hour
)

// second is a second in µs.
const second = int64(1_000_000)

func rulesOf(limit int64, interval time.Duration, buckets int64) Rules {
	return Rules{Bucket: interval.Microseconds() / buckets, Buckets: buckets, Limit: limit}
}

func mustRead(t testing.TB, state string, r Rules, now int64) *Window {
	w, err := readOne(state, r, now)
	require.NoError(t, err, "%q", state)
	return w
}

func readOne(state string, r Rules, now int64) (*Window, error) {
	all, err := Read(map[string]string{"": state}, r, now)
	return all[""], err
}

// free is FirstFree in numbers of buckets.
func (w *Window) free(from int64) int64 { return w.FirstFree(from*w.Bucket) / w.Bucket }

// at returns a time of the day of Hangfire's examples, in µs since the epoch.
func at(hour, minute int) int64 {
	return time.Date(2026, 11, 2, hour, minute, 0, 0, time.UTC).UnixMicro()
}

// Hangfire's documentation: a sliding window of 4 in an hour with 3 buckets. Jobs 6 to 9 wait for 13:40 although an hour
// has not gone by.
func TestWindow_SlidingExample(t *testing.T) {
	r := rulesOf(4, time.Hour, 3)
	state := ""
	run := func(now int64) bool {
		w := mustRead(t, state, r, now)
		ok := w.Admits(false)
		if ok {
			w.Start()
			state = w.String()
		}
		return ok
	}
	for range 4 {
		assert.True(t, run(at(12, 41)))
	}
	for _, now := range []int64{at(12, 41), at(12, 59), at(13, 0), at(13, 39)} {
		assert.False(t, run(now))
		w := mustRead(t, state, r, now)
		assert.Equal(t, at(13, 40), (w.free(w.now) * w.Bucket))
	}
	for i := range 5 {
		assert.Equal(t, i < 4, run(at(13, 40)))
	}
	assert.Len(t, strings.Fields(state), 2, "the bucket that has left the window is forgotten: %q", state)
}

// A model keeps the states of a window's keys as the database does, and lists of what began and what is reserved.
type model struct {
	Rules
	t              testing.TB
	now            int64 // µs
	states         map[string]string
	starts, places []entry
	keys           map[string]*Window // as they were read last
	bucket         int64              // the current bucket
}

// An entry is an execution or a reservation.
type entry struct {
	key string
	at  int64
}

func newModel(t testing.TB, r Rules) *model {
	return &model{Rules: r, t: t, now: 1_700_006_400 * second, states: map[string]string{}}
}

// sharing are the rules of a dynamic window, as jobs.Definition makes them.
func sharing(most int64, interval time.Duration, buckets int64, s Shares) Rules {
	r := rulesOf(most, interval, buckets)
	r.Shares = &s
	return r
}

// read reads the states as a batch does that needs these keys.
func (m *model) read(keys ...string) map[string]*Window {
	for _, key := range keys {
		m.states[key] = m.states[key]
	}
	var err error
	m.keys, err = Read(m.states, m.Rules, m.now)
	require.NoError(m.t, err)
	w := m.keys[keys[0]]
	m.bucket = w.now
	lapsed := m.now >= w.now*w.Bucket+LapseAfter(w.Bucket)
	m.starts = slices.DeleteFunc(m.starts, func(e entry) bool { return e.at <= m.bucket-m.Buckets })
	m.places = slices.DeleteFunc(m.places, func(e entry) bool { return e.at < m.bucket || e.at == m.bucket && lapsed })
	m.save() // without what no longer has an effect
	return m.keys
}

func (m *model) save() {
	for key, w := range m.keys {
		m.states[key] = w.String()
	}
}

// start reports whether an execution of the key begins.
func (m *model) start(key string) bool {
	w := m.read(key)[key]
	free := w.Admits(false)
	if free {
		w.Start()
		m.starts = append(m.starts, entry{key, w.now})
		m.save()
	}
	return free
}

// fill starts as many of each key as there may be, in turn, and returns how many of each began.
func (m *model) fill(keys ...string) (n []int64) {
	for more := true; more; {
		more = false
		for _, key := range keys {
			more = m.start(key) || more
		}
	}
	for _, key := range keys {
		n = append(n, m.read(key)[key].Started())
	}
	return n
}

// count counts entries in the window that ends at a bucket; of all keys if key is "".
func (m *model) count(entries []entry, key string, end int64) (n int64) {
	for _, e := range entries {
		if (key == "" || e.key == key) && e.at > end-m.Buckets && e.at <= end {
			n++
		}
	}
	return n
}

// limit computes the limit of a key by going through all keys.
func (m *model) limit(key string, at int64) (limit int64, ok bool) {
	s := m.Shares
	if s == nil {
		return m.Limit, true
	}
	n, rank, in := int64(0), int64(0), false
	for other := range m.keys {
		if m.count(m.starts, other, at)+m.count(m.places, other, at) > 0 {
			n++
			in = in || other == key
			if other < key {
				rank++
			}
		}
	}
	if !in {
		if n++; n > s.Keys {
			return 0, false
		}
	}
	limit = s.Capacity / n
	if rank < s.Capacity%n {
		limit++
	}
	return max(s.Min, min(limit, m.Limit)), true
}

func (m *model) hasCapacity(at int64) bool {
	return m.Shares == nil || m.count(m.starts, "", at) < m.Shares.Capacity
}

// hasRoom reports whether one more execution may begin in a bucket, beside all reservations of the key.
func (m *model) hasRoom(key string, at int64) bool {
	limit, ok := m.limit(key, at)
	for end := at; end < at+m.Buckets; end++ {
		ok = ok && m.count(m.starts, key, end)+m.count(m.places, key, end) < limit
	}
	return ok && m.hasCapacity(at)
}

// Whatever begins, is reserved and is taken back in whatever order, by a clock that is set back by up to a window and on
// again: a window says what lists of all executions and reservations say.
func TestWindow_AgainstLists(t *testing.T) {
	for seed := range uint64(90) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		r := Rules{Bucket: second * (1 + rnd.Int64N(3)), Buckets: 1 + rnd.Int64N(6), Limit: 1 + rnd.Int64N(5)}
		keys := []string{"a"}
		if seed%3 > 0 {
			s := Shares{Capacity: 3 + rnd.Int64N(12), Min: 1 + rnd.Int64N(3)}
			s.Keys = min(s.Capacity/s.Min, 2+rnd.Int64N(5))
			r.Shares, r.Limit = &s, s.Min+rnd.Int64N(s.Capacity-s.Min+1)
			keys = []string{"a", "b", "c", "d", "e"}[:1+rnd.IntN(5)]
		}
		m := newModel(t, r)
		clock, setBack := m.now+rnd.Int64N(second), seed%2 == 0
		for range 30 {
			clock += rnd.Int64N(2) * rnd.Int64N(r.Interval()*3/2)
			if m.now = clock; setBack && rnd.IntN(3) == 0 {
				m.now -= rnd.Int64N(r.Buckets+1) * r.Bucket
			}
			latest := m.now / r.Bucket
			for _, e := range m.starts {
				latest = max(latest, e.at)
			}
			ws := m.read(keys...)
			fail := fmt.Sprintf("seed %d, rules %+v %+v, now %d in %d, states %q", seed, r, r.Shares, m.now, m.bucket, m.states)
			require.Equal(t, latest, m.bucket, "the time never runs backwards: "+fail)
			for range rnd.IntN(20) { // one transaction may do many things
				key := keys[rnd.IntN(1+rnd.IntN(len(keys)))] // the first come most
				w, from := ws[key], m.bucket+rnd.Int64N(2)*rnd.Int64N(r.Buckets*2)
				limit, ok := m.limit(key, from)
				got, gotOK := w.limitAt(from)
				require.Equal(t, fmt.Sprint(limit, ok), fmt.Sprint(got, gotOK), fail)
				require.Equal(t, m.count(m.starts, key, m.bucket), w.Started(), fail)
				require.Equal(t, m.hasRoom(key, m.bucket), w.Admits(false), "%s %v %v: %s", key, m.starts, m.places, fail)
				now, ok := m.limit(key, m.bucket)
				require.Equal(t, ok && m.hasCapacity(m.bucket) && w.Started() < now, w.Admits(true), fail)
				free := from
				for !m.hasRoom(key, free) {
					free++
				}
				require.Equal(t, free, w.free(from), "first free of %s from %d: %s", key, from, fail)
				switch rnd.IntN(5) {
				case 0:
					w.Reserve(free * w.Bucket)
					m.places = append(m.places, entry{key, free})
				case 1:
					if w.Admits(rnd.IntN(2) == 0) {
						w.Start()
						m.starts = append(m.starts, entry{key, m.bucket})
					}
				case 2:
					if i := slices.IndexFunc(m.places, func(e entry) bool { return e.key == key }); i >= 0 {
						w.Withdraw(m.places[i].at * w.Bucket)
						m.places = slices.Delete(m.places, i, i+1)
					}
				case 3: // counted for a job that needs another key too, and taken back
					w.Start()
					ws[keys[0]].free(m.bucket)
					w.TakeBack()
				}
			}
			if r.Shares == nil {
				require.LessOrEqual(t, m.count(m.starts, "a", m.bucket), r.Limit, fail)
			} else {
				require.LessOrEqual(t, m.count(m.starts, "", m.bucket), r.Shares.Capacity, fail)
			}
			for _, w := range ws {
				text := w.String()
				require.Equal(t, text, mustRead(t, text, r, w.now*w.Bucket).String(), "a round trip")
			}
			m.save()
		}
	}
}

// After a step back of more than a window the executions that are ahead do not count any more: jobs do not wait for the
// time to come back. Those of a window ahead do count.
func TestWindow_ClockSetFarBack(t *testing.T) {
	r := rulesOf(2, 10*time.Second, 10)
	now := 1_700_000_000 * second
	w := mustRead(t, "", r, now)
	w.Start()
	w.Start()
	w.Reserve((w.now + 10) * w.Bucket)
	state := w.String()

	for _, back := range []int64{0, 1, 9, 10} {
		w = mustRead(t, state, r, now-back*second)
		assert.False(t, w.Admits(false), "%d s back", back)
		assert.Equal(t, now/r.Bucket, w.now, "%d s back: the time stands still", back)
	}
	for _, back := range []int64{11, 12, 3600, 1_000_000_000} {
		w = mustRead(t, state, r, now-back*second)
		assert.Equal(t, (now-back*second)/r.Bucket, w.now, "%d s back", back)
		assert.True(t, w.Admits(false), "%d s back", back)
	}
	for _, forward := range []int64{10, 11, 1_000_000_000} {
		w = mustRead(t, state, r, now+forward*second)
		assert.True(t, w.Admits(true), "%d s on", forward)
	}
}

// A limiter gets another limit, interval and number of buckets while the time goes on. Nothing that began leaves the
// window before it should by the new rules, unless it had left it by rules in between.
func TestWindow_RulesThatChange(t *testing.T) {
	type start struct{ at int64 }
	for seed := range uint64(60) {
		rnd := rand.New(rand.NewPCG(seed, 3))
		now := 1_700_000_000 * second
		var starts []start
		state, r := "", Rules{Bucket: second, Buckets: 1, Limit: 1}
		for step := range 80 {
			if step%8 == 0 {
				width := []int64{1000, 1001, 1500, 2000, 3600, 10_000, 60_000, 90_001}[rnd.IntN(8)] * 1000
				r = Rules{Bucket: width, Buckets: 1 + rnd.Int64N(1+rnd.Int64N(60)), Limit: 1 + rnd.Int64N(6)}
			}
			now += rnd.Int64N(1 + rnd.Int64N(r.Interval()))
			w := mustRead(t, state, r, now)
			require.Equal(t, now/r.Bucket, w.now, "seed %d: the time does not stand still", seed)
			count := int64(0)
			starts = slices.DeleteFunc(starts, func(s start) bool { return s.at/r.Bucket <= now/r.Bucket-r.Buckets })
			for range starts {
				count++
			}
			require.GreaterOrEqual(t, w.Started(), count, "seed %d, step %d: rules %+v, state %q, now %d", seed, step, r, state, now)
			if w.Admits(rnd.IntN(2) == 0) {
				w.Start()
				starts = append(starts, start{now})
			} else if rnd.IntN(2) == 0 {
				w.Reserve((w.free(w.now)) * w.Bucket)
			}
			if w.Changed {
				state = w.String()
			}
		}
	}
}

// What has been counted leaves the window after the old bucket and the new interval at the latest, also if every job is
// refused or cancelled meanwhile, which writes nothing but that the rules have changed.
func TestWindow_RulesThatChangeHoldNothingForLong(t *testing.T) {
	for _, c := range []struct{ before, after Rules }{
		{rulesOf(3, time.Hour, 1), rulesOf(1, time.Minute, 1)},
		{rulesOf(3, time.Hour, 1), rulesOf(1, time.Minute, 60)},
		{rulesOf(3, time.Hour, 60), rulesOf(1, time.Hour, 1)},
		{rulesOf(3, time.Minute, 1), rulesOf(1, 24*time.Hour, 24)},
		{rulesOf(3, 24*time.Hour, 2), rulesOf(1, time.Hour, 30)},
		{rulesOf(3, time.Hour, 1), rulesOf(1, 2*time.Hour, 3)},
	} {
		for _, offset := range []int64{0, 1, 17 * 60 * second, 3600*second - 1} {
			now := 1_700_006_400*second + offset
			w := mustRead(t, "", c.before, now)
			for range 3 {
				w.Start()
			}
			state := w.String()
			changed := now
			step := c.after.Bucket
			end := int64(0)
			for now = changed; end == 0; now += step {
				w = mustRead(t, state, c.after, now)
				if w.Changed {
					state = w.String()
				}
				if w.Admits(false) {
					end = now
				}
			}
			assert.Greater(t, end, changed, "%+v: what was counted counts", c)
			assert.LessOrEqual(t, end-changed, c.after.Interval()+step, "%+v at %d", c, offset)
		}
	}
}

// Places that were reserved in buckets of another length are taken back by the jobs that reserved them.
func TestWindow_ReservationsWhenRulesChange(t *testing.T) {
	before, after := rulesOf(1, time.Hour, 1), rulesOf(5, 24*time.Hour, 1)
	now := 1_700_006_400 * second
	w := mustRead(t, "", before, now)
	w.Start()
	var places []int64
	for range 10 {
		at := w.free(w.now)
		w.Reserve(at * w.Bucket)
		places = append(places, (at * w.Bucket))
	}
	w = mustRead(t, w.String(), after, now+1)
	for _, at := range places {
		w.Withdraw((at / w.Bucket) * w.Bucket)
	}
	for _, b := range w.Filled {
		assert.Zero(t, b.Reserved, "%+v", b)
	}
	assert.True(t, w.Admits(false))
}

func TestWindow_TooFarAhead(t *testing.T) {
	r := rulesOf(1, time.Second, 1)
	w := mustRead(t, "", r, 1_700_000_000*second)
	w.Start()
	n := 0
	for range 1500 {
		at := w.free(w.now)
		if w.TooFarAhead(at * w.Bucket) {
			break
		}
		w.Reserve(at * w.Bucket)
		n++
	}
	assert.Equal(t, MaxAhead, n)
	assert.Less(t, len(w.String()), 8000)

	roomy := rulesOf(maxCount, time.Second, 1)
	w = mustRead(t, w.String(), roomy, 1_700_000_000*second)
	assert.False(t, w.TooFarAhead((w.free(w.now))*w.Bucket), "a bucket that has reservations takes more")
}

// The widest that options allow: nothing overflows.
func TestWindow_Widest(t *testing.T) {
	for _, r := range []Rules{rulesOf(1, maxWindow, 1), rulesOf(1, maxWindow, 1000), rulesOf(maxCount, maxWindow, 1000)} {
		now := 1_700_000_000 * second
		w := mustRead(t, "", r, now)
		for range 3 {
			if w.Admits(false) {
				w.Start()
			}
		}
		last := int64(0)
		for range MaxAhead {
			at := w.free(w.now)
			require.Positive(t, at)
			w.Reserve(at * w.Bucket)
			last = max(last, (at * w.Bucket))
			require.Positive(t, (at * w.Bucket))
		}
		assert.GreaterOrEqual(t, w.Expires(), last+maxWindow.Microseconds()-r.Bucket)
		assert.Less(t, w.Expires(), int64(math.MaxInt64/2))
		again := mustRead(t, w.String(), r, (w.now * w.Bucket))
		assert.Equal(t, w.Filled, again.Filled)
	}
}

func keyNames(n int) (keys []string) {
	for i := range n {
		keys = append(keys, fmt.Sprintf("tenant:%03d", i))
	}
	return keys
}

// The tables of docs/jobs.md, of what each key gets.
func TestDynamicWindow_Shares(t *testing.T) {
	for _, c := range []struct {
		most int64
		Shares
		want []int64 // one key each
	}{
		{20, Shares{20, 2, 10}, []int64{20}}, {20, Shares{20, 2, 10}, []int64{10, 10}}, {20, Shares{20, 2, 10}, []int64{7, 7, 6}},
		{20, Shares{20, 2, 10}, []int64{5, 5, 5, 5}}, {20, Shares{20, 2, 10}, []int64{4, 4, 3, 3, 3, 3}},
		{20, Shares{20, 2, 10}, []int64{3, 3, 2, 2, 2, 2, 2, 2, 2}}, {20, Shares{20, 2, 10}, []int64{2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 0}},
		{4, Shares{20, 4, 5}, []int64{4, 4, 4, 4, 4, 0, 0}}, {5, Shares{20, 1, 20}, []int64{5, 5}}, {20, Shares{20, 1, 2}, []int64{10, 10, 0}},
		{4, Shares{23, 4, 5}, []int64{4, 4, 4, 4, 4, 0}},
	} {
		m := newModel(t, sharing(c.most, time.Hour, 60, c.Shares))
		assert.Equal(t, c.want, m.fill(keyNames(len(c.want))...), "%+v", c)
		m.now += 3600 * second
		assert.Equal(t, []int64{c.most}, m.fill(keyNames(1)...), "%+v: alone again", c)
	}
}

// A key that comes when others have used up the capacity waits for the window to move on.
func TestDynamicWindow_Newcomer(t *testing.T) {
	m := newModel(t, sharing(20, time.Minute, 2, Shares{Capacity: 20, Min: 2, Keys: 10}))
	assert.Equal(t, []int64{20, 0}, append(m.fill("first"), m.fill("second")...))
	w := m.read("second")["second"]
	assert.Equal(t, m.now+60*second, w.FirstFree(m.now))
	m.now += 60 * second
	assert.True(t, m.start("second"))
	assert.Equal(t, []int64{10, 10}, m.fill("first", "second"))
}

func TestRead_WhatCannotBeRead(t *testing.T) {
	r := rulesOf(2, 10*time.Second, 10)
	for _, state := range []string{
		"x", "0", "-1", "0 1:1:1", "-5 1:1:1", "1e6 1:1:1", "99999999999999999999 1:1:1", "1000000 1", "1000000 1:1", "1000000 1:1:1:1", "1000000 ::",
		"1000000 -1:1:1", "1000000 1:-1:1", "1000000 1:1:-1", "1000000 1:1:x", "1000000 99999999999999999999:1:1", "1000000 1: 1:1", " 1000000",
		"1000000 9223372036854775807:1:1", "1000000 1700000000:1:1 9223372036854775807:1:1", "9223372036854775807 2:1:1",
		"1000000 1700000000:9223372036854775807:0", "1000000 1700000000:0:9223372036854775807",
		"2000000 1700000000:9223372036854775807:0", "1 9223372036854775807:0:1",
	} {
		_, err := readOne(state, r, 1_700_000_000*second)
		assert.ErrorContains(t, err, "cannot be read", "%q", state)
	}
	_, err := readOne(strings.Repeat("x", 1<<20), r, 1_700_000_000*second)
	require.Error(t, err)
	assert.Less(t, len(err.Error()), 200)
}

// A state that is hostile is an error, or a window that still computes: no panic, no sum that overflows.
func FuzzRead(f *testing.F) {
	f.Add("", int64(60), int64(1), int64(1), int64(1_700_000_000))
	f.Add("1000000 1700000000:3:1 1:0:2 5:1:1", int64(1), int64(10), int64(3), int64(1_700_000_002))
	f.Add("3600000000 472222:3:1 1:0:2", int64(60), int64(60), int64(5), int64(1_700_000_002))
	f.Add("9223372036854775807 0:9223372036854775807:0", int64(1), int64(1000), int64(1), int64(1))
	f.Add("1 9223372036854775807:1:9223372036854775807 1:1:1", int64(315_360_000), int64(1), int64(1), int64(1_700_000_000))
	f.Fuzz(func(t *testing.T, state string, width, buckets, limit, now int64) {
		if width < 1 || width > 315_360_000 || buckets < 1 || buckets > maxBuckets || limit < 1 || limit > maxCount || now < 0 || now > 1<<33 {
			return
		}
		r := Rules{Bucket: width * second, Buckets: buckets, Limit: limit}
		w, err := readOne(state, r, now*second)
		if err != nil {
			return
		}
		sane := func() {
			require.LessOrEqual(t, len(w.Filled), len(state)/6+5, "%q", state)
			last := int64(math.MinInt64)
			for _, b := range w.Filled {
				require.Greater(t, b.At, last)
				require.Greater(t, b.At, w.now-r.Buckets)
				require.True(t, b.Started >= 0 && b.Reserved >= 0 && b.Started+b.Reserved > 0)
				require.True(t, b.Started == 0 || b.At <= w.now)
				last = b.At
			}
			require.GreaterOrEqual(t, w.Started(), int64(0))
			require.GreaterOrEqual(t, w.Expires(), now*second)
			require.Positive(t, w.Expires()/second)
		}
		sane()
		require.GreaterOrEqual(t, w.now, now*second/r.Bucket)
		require.LessOrEqual(t, w.now-now*second/r.Bucket, 2*r.Buckets)
		again, err := readOne(w.String(), r, now*second)
		require.NoError(t, err)
		require.True(t, slices.Equal(w.Filled, again.Filled))
		require.Equal(t, w.now, again.now)

		free := w.free(w.now)
		require.GreaterOrEqual(t, free, w.now)
		require.True(t, w.fits(free, limit))
		require.Equal(t, free == w.now, w.Admits(false))
		if w.Admits(true) {
			w.Start()
			require.LessOrEqual(t, w.Started(), limit)
		}
		w.Reserve(free * w.Bucket)
		sane()
		w.Withdraw(free * w.Bucket)
	})
}
