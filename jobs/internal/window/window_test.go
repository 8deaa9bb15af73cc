package window

import (
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
	w, err := Read(state, r, now)
	require.NoError(t, err, "%q", state)
	return w
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

// A naiveWindow is a list of the buckets in which executions began, and one of reservations.
type naiveWindow struct {
	buckets  int64
	starts   []int64
	reserved []int64
}

func (m *naiveWindow) started(from, to int64) (n int64) {
	for _, s := range m.starts {
		if s >= from && s <= to {
			n++
		}
	}
	return n
}

func (m *naiveWindow) fits(at, now, limit int64) bool {
	for end := at; end < at+m.buckets; end++ {
		n := m.started(end-m.buckets+1, end)
		for _, r := range m.reserved {
			if r >= now && r > end-m.buckets && r <= end {
				n++
			}
		}
		if n+1 > limit {
			return false
		}
	}
	return true
}

func (m *naiveWindow) firstFree(from, now, limit int64) int64 {
	for !m.fits(from, now, limit) {
		from++
	}
	return from
}

// Whatever starts, reserves and withdraws in whatever order: the window says what a list of all starts says.
func TestWindow_AgainstAListOfStarts(t *testing.T) {
	for seed := range uint64(60) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		r := Rules{Bucket: second * (1 + rnd.Int64N(3)), Buckets: 1 + rnd.Int64N(6), Limit: 1 + rnd.Int64N(5)}
		m := &naiveWindow{buckets: r.Buckets}
		now := 1_700_000_000*second + rnd.Int64N(second)
		state := ""
		const fail = "seed %d, rules %+v, state %q"
		for range 60 {
			now += rnd.Int64N(2) * rnd.Int64N(r.Bucket*r.Buckets*3/2)
			w := mustRead(t, state, r, now)
			require.Equal(t, now/r.Bucket, w.now, fail, seed, r, state)
			if now%r.Bucket >= LapseAfter(r.Bucket) { // reservations in this bucket are due, and keep no other job out
				for i, at := range m.reserved {
					if at == w.now {
						m.reserved[i]--
					}
				}
			}
			for range rnd.IntN(6) { // one transaction may do many things
				require.Equal(t, m.started(w.now-r.Buckets+1, w.now), w.Started(), fail, seed, r, state)
				switch from := w.now + rnd.Int64N(2)*rnd.Int64N(r.Buckets*2); rnd.IntN(5) {
				case 0:
					require.Equal(t, m.fits(w.now, w.now, r.Limit), w.Admits(false), fail, seed, r, state)
					if w.Admits(false) {
						w.Start()
						m.starts = append(m.starts, w.now)
					}
				case 1: // with a reservation, for another bucket too
					if i := slices.IndexFunc(m.reserved, func(at int64) bool { return at <= w.now }); i >= 0 {
						w.Withdraw((m.reserved[i]) * w.Bucket)
						m.reserved = slices.Delete(m.reserved, i, i+1)
						require.Equal(t, m.started(w.now-r.Buckets+1, w.now) < r.Limit, w.Admits(true), fail, seed, r, state)
						if w.Admits(true) {
							w.Start()
							m.starts = append(m.starts, w.now)
						}
					}
				case 2:
					free := w.free(from)
					require.Equal(t, m.firstFree(from, w.now, r.Limit), free, "first free from %d: "+fail, from, seed, r, state)
					w.Reserve((free) * w.Bucket)
					m.reserved = append(m.reserved, free)
				case 3: // only a look: another limit of the job decides
					require.Equal(t, m.firstFree(from, w.now, r.Limit), w.free(from), "first free from %d: "+fail, from, seed, r, state)
				case 4:
					if n := len(m.reserved); n > 0 {
						i := rnd.IntN(n)
						w.Withdraw((m.reserved[i]) * w.Bucket)
						m.reserved = slices.Delete(m.reserved, i, i+1)
					}
				}
			}
			for _, s := range m.starts {
				require.LessOrEqual(t, m.started(s, s+r.Buckets-1), r.Limit, "too many in a window: "+fail, seed, r, state)
				require.LessOrEqual(t, m.started(s-r.Buckets+1, s), r.Limit, "too many in a window: "+fail, seed, r, state)
			}
			m.starts = slices.DeleteFunc(m.starts, func(s int64) bool { return s < w.now-2*r.Buckets })
			m.reserved = slices.DeleteFunc(m.reserved, func(at int64) bool { return at < w.now && rnd.IntN(2) == 0 })
			text := w.String()
			require.Equal(t, text, mustRead(t, text, r, (w.now*w.Bucket)).String(), "a round trip")
			if rnd.IntN(4) > 0 || w.Changed {
				state = text
			}
		}
	}
}

// The clock is set back by up to a window, and forward to where it was. No window ever has too many.
func TestWindow_ClockStepsWithinAWindow(t *testing.T) {
	for seed := range uint64(20) {
		rnd := rand.New(rand.NewPCG(seed, 2))
		r := Rules{Bucket: second, Buckets: 1 + rnd.Int64N(8), Limit: 1 + rnd.Int64N(4)}
		m := &naiveWindow{buckets: r.Buckets}
		clock := 1_700_000_000 * second
		state := ""
		latest := int64(0)
		for range 200 {
			clock += rnd.Int64N(second)
			now := clock
			if rnd.IntN(3) == 0 {
				now -= rnd.Int64N(r.Buckets+1) * second
			}
			w := mustRead(t, state, r, now)
			require.GreaterOrEqual(t, w.now, now/r.Bucket)
			if len(m.starts) > 0 {
				require.GreaterOrEqual(t, w.now, latest, "seed %d: the time of a row never runs backwards", seed)
			}
			if w.Admits(rnd.IntN(2) == 0) {
				require.Less(t, m.started(w.now-r.Buckets+1, w.now), r.Limit, "seed %d", seed)
				w.Start()
				m.starts = append(m.starts, w.now)
				latest, state = w.now, w.String()
			}
		}
		require.NotEmpty(t, m.starts)
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
		w.Reserve((at) * w.Bucket)
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

func TestWindow_WithdrawWhatIsGone(t *testing.T) {
	r := rulesOf(2, 3*time.Second, 3)
	now := 1_700_000_000 * second
	w := mustRead(t, "", r, now)
	w.Reserve((w.now + 1) * w.Bucket)
	w.Reserve((w.now + 5) * w.Bucket)
	state := w.String()
	w = mustRead(t, state, r, now+3*second)
	w.Withdraw((now/second + 1) * w.Bucket)
	assert.False(t, w.Changed, "it has passed")
	w.Withdraw((now/second + 4) * w.Bucket)
	assert.False(t, w.Changed, "there never was one")
	w.Withdraw((now/second + 5) * w.Bucket)
	w.Withdraw((now/second + 5) * w.Bucket)
	assert.True(t, w.Changed)
	assert.Empty(t, w.String())
}

func TestWindow_StateIsSmall(t *testing.T) {
	r := rulesOf(maxCount, 300*time.Second, 300)
	now := 1_700_000_000 * second
	state := ""
	for i := range int64(400) {
		w := mustRead(t, state, r, now+i*second)
		w.Start()
		w.Start()
		state = w.String()
	}
	w := mustRead(t, state, r, now+399*second)
	assert.Len(t, w.Filled, 300)
	assert.Less(t, len(state), 300*6+30)
	assert.EqualValues(t, 600, w.Started())
}

func TestWindow_TooFarAhead(t *testing.T) {
	r := rulesOf(1, time.Second, 1)
	w := mustRead(t, "", r, 1_700_000_000*second)
	w.Start()
	n := 0
	for range 1500 {
		at := w.free(w.now)
		if w.TooFarAhead((at) * w.Bucket) {
			break
		}
		w.Reserve((at) * w.Bucket)
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
			w.Reserve((at) * w.Bucket)
			last = max(last, (at * w.Bucket))
			require.Positive(t, (at * w.Bucket))
		}
		assert.GreaterOrEqual(t, w.Expires(), last+maxWindow.Microseconds()-r.Bucket)
		assert.Less(t, w.Expires(), int64(math.MaxInt64/2))
		again := mustRead(t, w.String(), r, (w.now * w.Bucket))
		assert.Equal(t, w.Filled, again.Filled)
	}
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
		_, err := Read(state, r, 1_700_000_000*second)
		assert.ErrorContains(t, err, "cannot be read", "%q", state)
	}
	_, err := Read(strings.Repeat("x", 1<<20), r, 1_700_000_000*second)
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
		w, err := Read(state, r, now*second)
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
		again, err := Read(w.String(), r, now*second)
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
		w.Reserve((free) * w.Bucket)
		sane()
		w.Withdraw((free) * w.Bucket)
	})
}
