package jobs

import (
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
	rules  rules
	now    int64 // µs
	states map[string]string
	starts []dynamicStart
}

type dynamicStart struct {
	key string
	at  int64 // µs
}

func newDynamic(t testing.TB, o Definition) *dynamicModel {
	t.Helper()
	require.Empty(t, wrong(o))
	return &dynamicModel{t: t, rules: o.rules(DynamicWindow), now: 1_700_006_400 * second, states: map[string]string{}}
}

// read makes a resource of the states, as a batch does, with a window for the key.
func (m *dynamicModel) read(key string) *dynamicWindow {
	b := newBatch(m.now)
	b.rows[0] = &keyRow{rules: m.rules}
	var parts []dynamicKey
	for k, state := range m.states {
		if state != "" && k != key {
			parts = append(parts, dynamicKey{ID: int64(len(parts) + 1), Key: k, State: state})
		}
	}
	parts = append(parts, dynamicKey{ID: int64(len(parts) + 1), Key: key, State: m.states[key]})
	require.NoError(m.t, b.prepare(storedRows{dynamic: parts}))
	return b.dynamic[0]
}

// start reports whether an execution of the key begins.
func (m *dynamicModel) start(key string) bool {
	d := m.read(key)
	if !d.admits(key, false) {
		return false
	}
	d.keys[key].start()
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
		n = append(n, d.keys[key].started(d.now))
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
	o := Definition{DynamicWindow: "x", Interval: time.Hour, Buckets: 60, Capacity: 20, MinLimit: 2, MaxLimit: 20}
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
				share, ok := m.read(key).keyLimit(key, m.now/m.rules.bucket)
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
	m := newDynamic(t, Definition{DynamicWindow: "x", Interval: time.Minute, Buckets: 2, Capacity: 20, MinLimit: 2})
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
		share, ok := d.keyLimit(key, d.now)
		require.True(m.t, ok)
		shares = append(shares, share)
	}
	return shares
}

// capacity: 20, limit: 4: at most 5 keys at a time, and each has its 4.
func TestDynamicWindow_LimitWithCapacity(t *testing.T) {
	m := newDynamic(t, Definition{DynamicWindow: "x", Interval: time.Minute, Capacity: 20, Limit: 4})
	keys := keyNames(7)
	assert.Equal(t, []int64{4, 4, 4, 4, 4, 0, 0}, m.fill(keys))
	m.now += 60 * second
	slices.Reverse(keys)
	assert.Equal(t, []int64{4, 4, 4, 4, 4, 0, 0}, m.fill(keys), "in any order")
	m = newDynamic(t, Definition{DynamicWindow: "x", Interval: time.Minute, Capacity: 23, Limit: 4})
	assert.Equal(t, []int64{4, 4, 4, 4, 4, 0}, m.fill(keyNames(6)), "what is left over is too little for a sixth")
	m = newDynamic(t, Definition{DynamicWindow: "x", Interval: time.Minute, Limit: 4})
	assert.Equal(t, []int64{4, 4, 4}, m.fill(keyNames(3)), "no capacity")
}

func TestDynamicWindow_Newcomer(t *testing.T) {
	o := Definition{DynamicWindow: "x", Interval: time.Minute, Buckets: 2, Capacity: 20, MinLimit: 2, MaxLimit: 20}
	t.Run("strict", func(t *testing.T) {
		m := newDynamic(t, o)
		assert.Equal(t, []int64{20}, m.fill([]string{"first"}))
		for range 3 {
			assert.False(t, m.start("second"), "nothing until the window moves")
			d := m.read("second")
			assert.Equal(t, m.starts[0].at+60*second, d.firstFree("second", d.now)*d.bucket)
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
	m := newDynamic(t, Definition{DynamicWindow: "x", Interval: time.Hour, Limit: 2})
	assert.EqualValues(t, 1000, m.rules.dynamic.keys, "by default")
	keys := keyNames(1001)
	b := newBatch(m.now)
	b.rows[0] = &keyRow{rules: m.rules}
	var parts []dynamicKey
	for i, key := range keys {
		parts = append(parts, dynamicKey{ID: int64(i + 1), Key: key})
	}
	require.NoError(t, b.prepare(storedRows{dynamic: parts}))
	d := b.dynamic[0]
	for i, key := range keys {
		require.Equal(t, i < 1000, d.admits(key, false), "%s", key)
		if i < 1000 {
			d.keys[key].start()
		}
	}
	assert.True(t, d.admits(keys[5], false), "the keys that take part go on")
	assert.Equal(t, d.now+1, d.firstFree(keys[1000], d.now), "it waits until others have left")

	m = newDynamic(t, Definition{DynamicWindow: "x", Interval: time.Hour, Limit: 2, MaxKeys: 2})
	assert.Equal(t, []int64{2, 2, 0}, m.fill(keyNames(3)))
	m = newDynamic(t, Definition{DynamicWindow: "x", Interval: time.Hour, Capacity: 6, MaxKeys: 2})
	assert.Equal(t, []int64{3, 3, 0}, m.fill(keyNames(3)))
}

// A key that only has a reservation takes part from then on: the others' shares are smaller, so that there is a place
// for it when it comes.
func TestDynamicWindow_ReservationsTakePart(t *testing.T) {
	m := newDynamic(t, Definition{DynamicWindow: "x", Interval: time.Minute, Capacity: 20, MinLimit: 2})
	m.fill([]string{"first"})
	d := m.read("second")
	place := d.firstFree("second", d.now)
	d.keys["second"].reserve(place)
	m.states["second"] = d.keys["second"].String()
	m.now += 60 * second
	for range 10 {
		require.True(t, m.start("first"))
	}
	assert.False(t, m.start("first"), "the second has its part")
	d = m.read("second")
	d.keys["second"].withdraw(place)
	assert.True(t, d.admits("second", true))
}

// Random arrivals in strict mode: what has begun in any window is never more than the capacity, no key has more than its
// share of the keys that take part, and every key gets its least part.
func TestDynamicWindow_NeverMoreThanCapacity(t *testing.T) {
	for seed := range uint64(15) {
		rnd := rand.New(rand.NewPCG(seed, 4))
		capacity := 1 + rnd.IntN(20)
		o := Definition{DynamicWindow: "x", Interval: time.Duration(1+rnd.IntN(5)) * 6 * time.Second, Buckets: 1 + rnd.IntN(6), Capacity: capacity, MinLimit: rnd.IntN(1 + min(capacity, 4))}
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
			m.now += rnd.Int64N(m.rules.bucket)
			key := keys[rnd.IntN(1+rnd.IntN(len(keys)))] // the first come most
			d := m.read(key)
			free := d.admits(key, false)
			m.starts = slices.DeleteFunc(m.starts, func(s dynamicStart) bool { return s.at/m.rules.bucket <= d.now-m.rules.buckets })
			all, own := int64(len(m.starts)), int64(0)
			for _, s := range m.starts {
				if s.key == key {
					own++
				}
			}
			share, ok := naiveShare(d, key, d.now)
			want := ok && all < m.rules.dynamic.capacity && own < share
			require.Equal(t, want, free, "seed %d: %+v: %d of %d in all, %d of %d of %s", seed, o, all, capacity, own, share, key)
			require.Equal(t, free, d.firstFree(key, d.now) == d.now, "seed %d", seed)
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
		for _, b := range w.filled {
			used = used || b.at > at-d.buckets && b.at <= at && b.started+b.reserved > 0
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
		if n >= d.dynamic.keys {
			return 0, false
		}
		n++
	}
	if d.dynamic.capacity == 0 {
		return d.dynamic.max, true
	}
	share := d.dynamic.capacity / n
	if rank < d.dynamic.capacity%n {
		share++
	}
	return max(d.dynamic.min, min(share, d.dynamic.max)), true
}

func naiveFirstFree(d *dynamicWindow, key string, from int64) int64 {
	m := &naiveWindow{buckets: d.buckets}
	for _, b := range d.keys[key].filled {
		m.starts = append(m.starts, slices.Repeat([]int64{b.at}, int(b.started+b.reserved))...)
	}
	for ; ; from++ {
		all := int64(0)
		for _, w := range d.keys {
			for _, b := range w.filled {
				if b.at > from-d.buckets && b.at <= from {
					all += b.started
				}
			}
		}
		if share, ok := naiveShare(d, key, from); ok && m.fits(from, from, share) && (d.dynamic.atOnce || d.dynamic.capacity == 0 || all < d.dynamic.capacity) {
			return from
		}
	}
}

// What a transaction keeps of all keys is right after whatever begins, is reserved and is taken back.
func TestDynamicWindow_ManyRequestsInOneBatch(t *testing.T) {
	for seed := range uint64(15) {
		rnd := rand.New(rand.NewPCG(seed, 9))
		buckets := 1 + rnd.IntN(6)
		o := Definition{DynamicWindow: "x", Interval: time.Duration(buckets) * time.Second, Buckets: buckets, Capacity: 3 + rnd.IntN(9), MinLimit: 1 + rnd.IntN(3), AtOnce: rnd.IntN(2) == 0}
		if rnd.IntN(4) == 0 {
			o.Capacity, o.MinLimit, o.AtOnce, o.Limit, o.MaxKeys = 0, 0, false, 1+rnd.IntN(3), 2
		}
		m := newDynamic(t, o)
		keys := keyNames(1 + rnd.IntN(5))
		for range 6 {
			m.now += rnd.Int64N(3 * second)
			d := m.read(keys[0])
			for _, key := range keys[1:] {
				if d.keys[key] == nil {
					d.keys[key] = &window{width: d.bucket, buckets: d.buckets, now: d.now}
				}
			}
			for range 40 {
				key := keys[rnd.IntN(len(keys))]
				w, from := d.keys[key], d.now+int64(rnd.IntN(2)*rnd.IntN(2*buckets))
				share, ok := d.keyLimit(key, from)
				wantShare, wantOK := naiveShare(d, key, from)
				require.Equal(t, wantOK, ok, "seed %d", seed)
				if ok {
					require.Equal(t, wantShare, share, "seed %d", seed)
				}
				free := d.firstFree(key, from)
				require.Equal(t, naiveFirstFree(d, key, from), free, "seed %d: %+v, key %s from %d", seed, o, key, from)
				require.Equal(t, naiveFirstFree(d, key, d.now) == d.now, d.admits(key, false), "seed %d", seed)
				switch rnd.IntN(4) {
				case 0:
					w.reserve(free)
				case 1:
					if d.admits(key, false) {
						w.start()
					}
				case 2:
					if n := len(w.filled); n > 0 {
						w.withdraw(w.filled[rnd.IntN(n)].at)
					}
				case 3: // counted for a job that needs another key too, and taken back
					if d.admits(key, false) {
						w.change(w.now, +1, 0)
						d.firstFree(keys[0], d.now)
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
		m := newDynamic(t, Definition{DynamicWindow: "x", Interval: 8 * time.Second, Buckets: 8, Capacity: 6})
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
