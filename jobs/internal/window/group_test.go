package window

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A dynamicModel keeps the states of a dynamic window's keys as the database does, and a list of all starts.
type dynamicModel struct {
	t      testing.TB
	rules  Rules
	now    int64 // µs
	states map[string]string
	starts []dynamicStart
}

type dynamicStart struct {
	key string
	at  int64 // µs
}

// options are those of a dynamic window in jobs.Definition.
type options struct {
	Interval                                              time.Duration
	Buckets, Capacity, Limit, MinLimit, MaxLimit, MaxKeys int
	AtOnce                                                bool
}

func newDynamic(t testing.TB, o options) *dynamicModel {
	t.Helper()
	s := &Shares{Capacity: int64(o.Capacity), Min: int64(o.Limit), Max: int64(o.Limit), Keys: int64(cmp.Or(o.MaxKeys, 1000)), AtOnce: o.AtOnce}
	if o.Limit == 0 {
		s.Min, s.Max = int64(max(o.MinLimit, 1)), int64(cmp.Or(o.MaxLimit, o.Capacity))
	}
	if s.Capacity > 0 {
		s.Keys = min(s.Keys, s.Capacity/s.Min)
	}
	r := rulesOf(s.Max, o.Interval, int64(max(o.Buckets, 1)))
	r.Shares = s
	return &dynamicModel{t: t, rules: r, now: 1_700_006_400 * second, states: map[string]string{}}
}

// A dynamicWindow is a group with the names of its keys.
type dynamicWindow struct {
	*group
	keys map[string]*Window
}

func (d *dynamicWindow) admits(key string, due bool) bool { return d.keys[key].Admits(due) }

func (d *dynamicWindow) limitOf(key string, at int64) (int64, bool) { return d.keys[key].limitAt(at) }

func (d *dynamicWindow) firstFreeOf(key string, from int64) int64 { return d.keys[key].free(from) }

// read reads the states as a batch does that needs these keys.
func (m *dynamicModel) read(needed ...string) *dynamicWindow {
	states := map[string]string{}
	for key, state := range m.states {
		if state != "" {
			states[key] = state
		}
	}
	for _, key := range needed {
		states[key] = m.states[key]
	}
	keys, err := ReadGroup(states, m.rules, m.now)
	require.NoError(m.t, err)
	return &dynamicWindow{keys[needed[0]].group, keys}
}

// start reports whether an execution of the key begins.
func (m *dynamicModel) start(key string) bool {
	d := m.read(key)
	if !d.admits(key, false) {
		return false
	}
	d.keys[key].Start()
	m.states[key] = d.keys[key].String()
	m.starts = append(m.starts, dynamicStart{key, m.now})
	return true
}

// fill starts as many of each key as there may be, one after the other in turn, and returns how many of each began in
// all in the window.
func (m *dynamicModel) fill(keys []string) []int64 {
	for more := true; more; {
		more = false
		for _, key := range keys {
			more = m.start(key) || more
		}
	}
	return m.used(keys)
}

func (m *dynamicModel) used(keys []string) (n []int64) {
	for _, key := range keys {
		d := m.read(key)
		n = append(n, d.keys[key].Started())
	}
	return n
}

func keyNames(n int) (keys []string) {
	for i := range n {
		keys = append(keys, fmt.Sprintf("tenant:%03d", i))
	}
	return keys
}

// sharesTable is Hangfire's: capacity 20, at least 2, at most 20.
var sharesTable = [][]int64{
	{20}, {10, 10}, {7, 7, 6}, {5, 5, 5, 5}, {4, 4, 4, 4, 4}, {4, 4, 3, 3, 3, 3}, {3, 3, 3, 3, 3, 3, 2}, {3, 3, 3, 3, 2, 2, 2, 2},
	{3, 3, 2, 2, 2, 2, 2, 2, 2}, {2, 2, 2, 2, 2, 2, 2, 2, 2, 2},
}

func TestDynamicWindow_SharesTable(t *testing.T) {
	o := options{Interval: time.Hour, Buckets: 60, Capacity: 20, MinLimit: 2, MaxLimit: 20}
	for i, want := range sharesTable {
		keys := keyNames(i + 1)
		for _, atOnce := range []bool{false, true} {
			o.AtOnce = atOnce
			m := newDynamic(t, o)
			for _, key := range keys {
				require.True(t, m.start(key))
			}
			var shares []int64
			for _, key := range keys {
				share, ok := m.read(key).limitOf(key, m.now/m.rules.Bucket)
				require.True(t, ok)
				shares = append(shares, share)
			}
			assert.Equal(t, want, shares, "%d keys", len(keys))
			assert.Equal(t, want, m.fill(keys), "%d keys, filled", len(keys))
			if len(keys) == 10 {
				assert.False(t, m.start("an eleventh"), "refused")
			}
		}
	}
}

// Keys that come and go: the others have more when one has left the window.
func TestDynamicWindow_SharesComeAndGo(t *testing.T) {
	m := newDynamic(t, options{Interval: time.Minute, Buckets: 2, Capacity: 20, MinLimit: 2})
	keys := keyNames(10)
	for i := range keys {
		require.True(t, m.start(keys[i]))
		assert.Equal(t, sharesTable[i], m.sharesOf(keys[:i+1]))
	}
	m.now += 30 * second
	for i := range 4 { // these stay
		require.True(t, m.start(keys[i]))
	}
	assert.Equal(t, sharesTable[9], m.sharesOf(keys))
	m.now += 30 * second
	assert.Equal(t, sharesTable[3], m.sharesOf(keys[:4]), "the six others have left")
	m.now += 30 * second
	assert.Equal(t, sharesTable[0], m.sharesOf(keys[7:8]), "full speed alone")
	m.now += 3600 * second
	assert.Equal(t, sharesTable[0], m.sharesOf(keys[:1]))
}

func (m *dynamicModel) sharesOf(keys []string) (shares []int64) {
	for _, key := range keys {
		d := m.read(key)
		share, ok := d.limitOf(key, d.now)
		require.True(m.t, ok)
		shares = append(shares, share)
	}
	return shares
}

// capacity: 20, limit: 4: at most 5 keys at a time, and each has its 4.
func TestDynamicWindow_LimitWithCapacity(t *testing.T) {
	m := newDynamic(t, options{Interval: time.Minute, Capacity: 20, Limit: 4})
	keys := keyNames(7)
	assert.Equal(t, []int64{4, 4, 4, 4, 4, 0, 0}, m.fill(keys))
	m.now += 60 * second
	slices.Reverse(keys)
	assert.Equal(t, []int64{4, 4, 4, 4, 4, 0, 0}, m.fill(keys), "in any order")
	m = newDynamic(t, options{Interval: time.Minute, Capacity: 23, Limit: 4})
	assert.Equal(t, []int64{4, 4, 4, 4, 4, 0}, m.fill(keyNames(6)), "what is left over is too little for a sixth")
	m = newDynamic(t, options{Interval: time.Minute, Limit: 4})
	assert.Equal(t, []int64{4, 4, 4}, m.fill(keyNames(3)), "no capacity")
}

func TestDynamicWindow_Newcomer(t *testing.T) {
	o := options{Interval: time.Minute, Buckets: 2, Capacity: 20, MinLimit: 2, MaxLimit: 20}
	t.Run("strict", func(t *testing.T) {
		m := newDynamic(t, o)
		assert.Equal(t, []int64{20}, m.fill([]string{"first"}))
		for range 3 {
			assert.False(t, m.start("second"), "nothing until the window moves")
			d := m.read("second")
			assert.Equal(t, m.starts[0].at+60*second, d.firstFreeOf("second", d.now)*d.Bucket)
			m.now += 29 * second
		}
		m.now = m.starts[0].at + 60*second
		assert.True(t, m.start("second"))
		assert.Equal(t, []int64{10, 10}, m.fill([]string{"first", "second"}))
	})
	t.Run("at once", func(t *testing.T) {
		o.AtOnce = true
		m := newDynamic(t, o)
		assert.Equal(t, []int64{20}, m.fill([]string{"first"}))
		assert.Equal(t, []int64{20, 10}, m.fill([]string{"first", "second"}), "its 10 at once")
		assert.Equal(t, []int64{20, 10, 6}, m.fill([]string{"first", "second", "third"}))
	})
}

func TestDynamicWindow_MaxKeys(t *testing.T) {
	m := newDynamic(t, options{Interval: time.Hour, Limit: 2})
	assert.EqualValues(t, 1000, m.rules.Shares.Keys, "by default")
	keys := keyNames(1001)
	d := m.read(keys...)
	for i, key := range keys {
		require.Equal(t, i < 1000, d.admits(key, false), "%s", key)
		if i < 1000 {
			d.keys[key].Start()
		}
	}
	assert.True(t, d.admits(keys[5], false), "the keys that take part go on")
	assert.Equal(t, d.now+1, d.firstFreeOf(keys[1000], d.now), "it waits until others have left")

	m = newDynamic(t, options{Interval: time.Hour, Limit: 2, MaxKeys: 2})
	assert.Equal(t, []int64{2, 2, 0}, m.fill(keyNames(3)))
	m = newDynamic(t, options{Interval: time.Hour, Capacity: 6, MaxKeys: 2})
	assert.Equal(t, []int64{3, 3, 0}, m.fill(keyNames(3)))
}

// A key that only has a reservation takes part from then on: the others' shares are smaller, so that there is a place
// for it when it comes.
func TestDynamicWindow_ReservationsTakePart(t *testing.T) {
	m := newDynamic(t, options{Interval: time.Minute, Capacity: 20, MinLimit: 2})
	m.fill([]string{"first"})
	d := m.read("second")
	place := d.firstFreeOf("second", d.now)
	d.keys["second"].Reserve((place) * d.keys["second"].Bucket)
	m.states["second"] = d.keys["second"].String()
	m.now += 60 * second
	for range 10 {
		require.True(t, m.start("first"))
	}
	assert.False(t, m.start("first"), "the second has its part")
	d = m.read("second")
	d.keys["second"].Withdraw((place) * d.keys["second"].Bucket)
	assert.True(t, d.admits("second", true))
}

// Random arrivals in strict mode: what has begun in any window is never more than the capacity, no key has more than its
// share of the keys that take part, and every key gets its least part.
func TestDynamicWindow_NeverMoreThanCapacity(t *testing.T) {
	for seed := range uint64(15) {
		rnd := rand.New(rand.NewPCG(seed, 4))
		capacity := 1 + rnd.IntN(20)
		o := options{Interval: time.Duration(1+rnd.IntN(5)) * 6 * time.Second, Buckets: 1 + rnd.IntN(6), Capacity: capacity, MinLimit: rnd.IntN(1 + min(capacity, 4))}
		if rnd.IntN(3) == 0 {
			o.MaxLimit = max(o.MinLimit, 1) + rnd.IntN(capacity-max(o.MinLimit, 1)+1)
		}
		if rnd.IntN(4) == 0 {
			o.MinLimit, o.MaxLimit, o.Limit = 0, 0, 1+rnd.IntN(capacity)
		}
		o.Interval = time.Duration(o.Buckets) * max(time.Second, (o.Interval/time.Duration(o.Buckets)).Truncate(time.Millisecond))
		m := newDynamic(t, o)
		keys := keyNames(1 + rnd.IntN(8))
		for range 150 {
			m.now += rnd.Int64N(m.rules.Bucket)
			key := keys[rnd.IntN(1+rnd.IntN(len(keys)))] // the first come most
			d := m.read(key)
			free := d.admits(key, false)
			m.starts = slices.DeleteFunc(m.starts, func(s dynamicStart) bool { return s.at/m.rules.Bucket <= d.now-m.rules.Buckets })
			all, own := int64(len(m.starts)), int64(0)
			for _, s := range m.starts {
				if s.key == key {
					own++
				}
			}
			share, ok := naiveShare(d, key, d.now)
			want := ok && all < m.rules.Shares.Capacity && own < share
			require.Equal(t, want, free, "seed %d: %+v: %d of %d in all, %d of %d of %s", seed, o, all, capacity, own, share, key)
			require.Equal(t, free, d.firstFreeOf(key, d.now) == d.now, "seed %d", seed)
			if free {
				require.True(t, m.start(key))
			}
			require.LessOrEqual(t, len(m.starts), capacity)
		}
	}
}

// naiveShare computes a key's share by going through all keys.
func naiveShare(d *dynamicWindow, key string, at int64) (int64, bool) {
	n, rank, in := int64(0), int64(0), false
	for other, w := range d.keys {
		used := false
		for _, b := range w.Filled {
			used = used || b.At > at-d.Buckets && b.At <= at && b.Started+b.Reserved > 0
		}
		if used {
			n++
			in = in || other == key
			if other < key {
				rank++
			}
		}
	}
	if !in {
		if n >= d.Shares.Keys {
			return 0, false
		}
		n++
	}
	if d.Shares.Capacity == 0 {
		return d.Shares.Max, true
	}
	share := d.Shares.Capacity / n
	if rank < d.Shares.Capacity%n {
		share++
	}
	return max(d.Shares.Min, min(share, d.Shares.Max)), true
}

func naiveFirstFree(d *dynamicWindow, key string, from int64) int64 {
	m := &naiveWindow{buckets: d.Buckets}
	for _, b := range d.keys[key].Filled {
		m.starts = append(m.starts, slices.Repeat([]int64{b.At}, int(b.Started+b.Reserved))...)
	}
	for ; ; from++ {
		all := int64(0)
		for _, w := range d.keys {
			for _, b := range w.Filled {
				if b.At > from-d.Buckets && b.At <= from {
					all += b.Started
				}
			}
		}
		if share, ok := naiveShare(d, key, from); ok && m.fits(from, from, share) && (d.Shares.AtOnce || d.Shares.Capacity == 0 || all < d.Shares.Capacity) {
			return from
		}
	}
}

// What a transaction keeps of all keys is right after whatever begins, is reserved and is taken back.
func TestDynamicWindow_ManyRequestsInOneBatch(t *testing.T) {
	for seed := range uint64(15) {
		rnd := rand.New(rand.NewPCG(seed, 9))
		buckets := 1 + rnd.IntN(6)
		o := options{Interval: time.Duration(buckets) * time.Second, Buckets: buckets, Capacity: 3 + rnd.IntN(9), MinLimit: 1 + rnd.IntN(3), AtOnce: rnd.IntN(2) == 0}
		if rnd.IntN(4) == 0 {
			o.Capacity, o.MinLimit, o.AtOnce, o.Limit, o.MaxKeys = 0, 0, false, 1+rnd.IntN(3), 2
		}
		m := newDynamic(t, o)
		keys := keyNames(1 + rnd.IntN(5))
		for range 6 {
			m.now += rnd.Int64N(3 * second)
			d := m.read(keys...)
			for range 40 {
				key := keys[rnd.IntN(len(keys))]
				w, from := d.keys[key], d.now+int64(rnd.IntN(2)*rnd.IntN(2*buckets))
				share, ok := d.limitOf(key, from)
				wantShare, wantOK := naiveShare(d, key, from)
				require.Equal(t, wantOK, ok, "seed %d", seed)
				if ok {
					require.Equal(t, wantShare, share, "seed %d", seed)
				}
				free := d.firstFreeOf(key, from)
				require.Equal(t, naiveFirstFree(d, key, from), free, "seed %d: %+v, key %s from %d", seed, o, key, from)
				require.Equal(t, naiveFirstFree(d, key, d.now) == d.now, d.admits(key, false), "seed %d", seed)
				switch rnd.IntN(4) {
				case 0:
					w.Reserve((free) * w.Bucket)
				case 1:
					if d.admits(key, false) {
						w.Start()
					}
				case 2:
					if n := len(w.Filled); n > 0 {
						w.Withdraw((w.Filled[rnd.IntN(n)].At) * w.Bucket)
					}
				case 3: // counted for a job that needs another key too, and taken back
					if d.admits(key, false) {
						w.change(w.now, +1, 0)
						d.firstFreeOf(keys[0], d.now)
						w.change(w.now, -1, 0)
					}
				}
			}
			for key, w := range d.keys {
				m.states[key] = w.String()
			}
		}
	}
}

// Clocks of servers that are apart by less than a window: the keys of a resource have one time, and there are never more
// than the capacity.
func TestDynamicWindow_ClockSteps(t *testing.T) {
	for seed := range uint64(5) {
		rnd := rand.New(rand.NewPCG(seed, 6))
		m := newDynamic(t, options{Interval: 8 * time.Second, Buckets: 8, Capacity: 6})
		keys := keyNames(3)
		clock := m.now
		var labels []int64
		for range 150 {
			clock += rnd.Int64N(second)
			m.now = clock - int64(rnd.IntN(2)*rnd.IntN(8))*second
			key := keys[rnd.IntN(len(keys))]
			d := m.read(key)
			for _, w := range d.keys {
				require.Equal(t, d.now, w.now)
			}
			if m.start(key) {
				n := 0
				for _, at := range labels {
					require.LessOrEqual(t, at, d.now, "the time never runs backwards")
					if at > d.now-8 {
						n++
					}
				}
				require.Less(t, n, 6, "seed %d", seed)
				labels = append(labels, d.now)
			}
		}
		require.Greater(t, len(labels), 20)
	}
}
