package weirrls

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/store/storetest"
)

// counterKinds are counters in this process and in a store. A test that is called with them runs in a bubble.
func eachCounters(t *testing.T, f func(t *testing.T, c *Counters)) {
	t.Run("memory", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) { f(t, weir.Must(NewCounters(nil))) })
	})
	t.Run("store", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := newStore(t, storetest.NewMemory(), nil)
			f(t, weir.Must(NewSharedCounters(s, nil)))
		})
	})
}

// adder returns the method count of counters that must not fail.
func adder(t testing.TB, c hitCounter) func(span timeSpan, key string, n int64) (sum int64) {
	return func(span timeSpan, key string, n int64) int64 {
		sum, err := c.count(t.Context(), span, key, n)
		require.NoError(t, err)
		return sum
	}
}

func TestCounters(t *testing.T) {
	eachCounters(t, func(t *testing.T, c *Counters) {
		count := adder(t, c.hits)
		for u := Second; u <= Year; u++ {
			span := spanAt(time.Now().Unix(), secondsOf[u])
			assert.EqualValues(t, 0, count(span, "a", 0))
			assert.EqualValues(t, 2, count(span, "a", 2))
			assert.EqualValues(t, 5, count(span, "a", 3))
			assert.EqualValues(t, 1, count(span, "b", 1))
			assert.EqualValues(t, 5, count(span, "a", 0))
			assert.EqualValues(t, 4, count(span, "a", -1))
			assert.EqualValues(t, 0, count(span, "a", -9))
			assert.EqualValues(t, 0, count(span, "c", -9))
			assert.Equal(t, int64(maxHits), count(span, "a", maxHits))
			assert.Equal(t, int64(maxHits+math.MaxUint32), count(span, "a", math.MaxUint32))
			next := timeSpan{span.begin + span.seconds, span.seconds}
			if u > Minute {
				continue
			}
			time.Sleep(time.Until(time.Unix(next.begin, 0)))
			assert.EqualValues(t, 1, count(next, "a", 1))
		}
	})
}

// TestCounters_WithinASpan: what was counted stays until its span ends, whatever the length of the span and when it was
// counted.
func TestCounters_WithinASpan(t *testing.T) {
	eachCounters(t, func(t *testing.T, c *Counters) {
		random := rand.New(rand.NewPCG(5, 6))
		for _, seconds := range []int64{1, 7, 45, 60, 61, 3599} {
			want := make(map[timeSpan]int64)
			for range 300 {
				time.Sleep(time.Duration(random.Int64N(seconds * int64(time.Second) / 4)))
				span := spanAt(time.Now().Unix(), seconds)
				n := random.Int64N(7) - 2
				want[span] = max(0, want[span]+n)
				sum, err := c.hits.count(t.Context(), span, "k", n)
				require.NoError(t, err)
				require.Equal(t, want[span], sum, seconds)
			}
		}
	})
}

// TestCounters_LateCaller: a caller that read the clock right before a unit began does not lose what others count, and gives
// nothing back to the new unit.
func TestCounters_LateCaller(t *testing.T) {
	count := adder(t, newMemoryCounters(10))
	now := spanAt(time.Now().Unix(), 60)
	before := timeSpan{now.begin - 60, 60}
	key := "k"
	assert.EqualValues(t, 3, count(before, key, 3))
	assert.EqualValues(t, 1, count(now, key, 1))
	assert.EqualValues(t, 1, count(before, key, -3))
	assert.EqualValues(t, 2, count(before, key, 1))
	assert.EqualValues(t, 5, count(now, key, 3))
	assert.EqualValues(t, 1, count(timeSpan{now.begin - 6000, 60}, key, 1), "the clock was set back")
	assert.EqualValues(t, 1, count(now, key, 1))
}

// TestCounters_MaxKeys: a flood of keys takes bounded memory, no key is ever counted too low, also over the end of a unit and
// when hits are given back, and what a key is counted too high is on average the hits of all divided by MaxKeys.
func TestCounters_MaxKeys(t *testing.T) {
	const maxKeys, rounds = 200, 50_000
	c := newMemoryCounters(maxKeys)
	count := adder(t, c)
	random := rand.New(rand.NewPCG(7, 8))
	truth := make(map[timeSpan]map[string]int64)
	var tooHigh, all int64
	for i := range int64(rounds) {
		key := strconv.Itoa(random.IntN(20)) // known ones
		if random.IntN(3) > 0 {
			key = strconv.Itoa(random.IntN(1_000_000))
		}
		// Days, and spans that go on after the end of a day.
		span := spanAt(i*3*day/rounds, []int64{day, 5 * 3600}[random.IntN(2)])
		if truth[span] == nil {
			truth[span] = make(map[string]int64)
		}
		n := int64(random.IntN(5) - 1)
		truth[span][key] = max(truth[span][key]+n, 0)
		all += max(n, 0)
		sum := count(span, key, n)
		require.GreaterOrEqual(t, sum, truth[span][key])
		tooHigh += sum - truth[span][key]
	}
	assert.Less(t, tooHigh/rounds, all/maxKeys)
	shard := &c[Day].shards[0]
	assert.Len(t, shard.own, maxKeys)
	assert.Len(t, shard.shared, maxKeys)
	assert.EqualValues(t, 1, count(timeSpan{10 * day, day}, "new", 1), "a new unit begins at 0")
	assert.Len(t, shard.own, 1)
}

func TestCounters_ConcurrentSafe(t *testing.T) {
	eachCounters(t, func(t *testing.T, c *Counters) {
		span := spanAt(time.Now().Unix(), secondsOf[Week])
		var wg sync.WaitGroup
		for g := range 8 {
			wg.Go(func() {
				for i := range 500 {
					_, err := c.hits.count(t.Context(), span, strconv.Itoa(i%5), 1)
					assert.NoError(t, err)
					_, err = c.hits.count(t.Context(), timeSpan{span.begin, int64(50 + g)}, "k", 1)
					assert.NoError(t, err)
				}
			})
		}
		wg.Wait()
		for i := range 5 {
			sum, err := c.hits.count(t.Context(), span, strconv.Itoa(i), 0)
			require.NoError(t, err)
			assert.EqualValues(t, 800, sum)
		}
	})
}

func TestNewCounters_Problems(t *testing.T) {
	_, err := NewCounters(&CountersOptions{MaxKeys: -1})
	require.EqualError(t, err, "weirrls: MaxKeys must be from 1 to 1000000000, or 0 for the default, got -1")
	_, err = NewSharedCounters(nil, &CountersOptions{MaxKeys: -1})
	require.ErrorContains(t, err, "weirrls: s must not be nil; MaxKeys must be from 1")
	st := newStore(t, storetest.NewMemory(), nil)
	_, err = NewSharedCounters(st, &CountersOptions{Name: "a b"})
	require.ErrorIs(t, err, weir.ErrInvalidOptions)
	rules := edge(t)
	_, err = NewService(nil, &ServiceOptions{Counters: &Counters{}})
	require.EqualError(t, err, "weirrls: rules must not be nil; Counters must be made by NewCounters or NewSharedCounters")
	s, err := NewService(rules, nil)
	require.NoError(t, err)
	s.SetRules(nil)
	assert.Same(t, rules, s.rules.Load())
}

// TestSharedCounters_Away: without the store, count fails at once, and the service answers by CountersFailOpen.
func TestSharedCounters_Away(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := storetest.NewMemory()
		st := newStore(t, memory, nil)
		other := newStore(t, memory, nil)
		c := weir.Must(NewSharedCounters(st, nil))
		limits := []Descriptor{{Key: "a", Limit: windowOf(3, Hour)}, {Key: "b", Limit: windowOf(3, Hour)}}
		s := newService(t, &ServiceOptions{Counters: c}, limits...)
		s2 := newService(t, &ServiceOptions{Counters: weir.Must(NewSharedCounters(other, nil))}, limits...)
		both := request(describe("a", ""), describe("b", ""), describe("a", ""))
		assert.Equal(t, codeList{isOK, isOK, isOK, isOK}, codesOf(ask(t, s, both.Descriptors...)))
		r := ask(t, s2, both.Descriptors...)
		assert.Equal(t, codeList{isOver, isOK, isOK, isOver}, codesOf(r))
		assert.EqualValues(t, 0, r.Statuses[0].LimitRemaining)
		assert.EqualValues(t, 1, r.Statuses[1].LimitRemaining)

		memory.Fail(errors.New("connection refused"))
		for range 5 { // so many calls that the store counts as away
			assert.Equal(t, isOver, ask(t, s, both.Descriptors...).OverallCode)
		}
		calls := memory.Calls("Decide")
		began := time.Now()
		assert.Equal(t, isOver, ask(t, s, both.Descriptors...).OverallCode)
		s.options.CountersFailOpen = true
		assert.Equal(t, isOK, ask(t, s, both.Descriptors...).OverallCode)
		assert.Equal(t, began, time.Now())
		assert.Equal(t, calls, memory.Calls("Decide"))
	})
}

// The first requests of a process have no answer of a far store in time. They are admitted and counted.
func TestSharedCounters_FirstRequestsCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := storetest.NewMemory()
		memory.Delay(8 * time.Millisecond)
		st := newStore(t, memory, nil)
		s := newService(t, &ServiceOptions{Counters: weir.Must(NewSharedCounters(st, nil)), CountersFailOpen: true},
			Descriptor{Key: "a", Limit: windowOf(100, Hour)})
		var all sync.WaitGroup
		for range 30 {
			all.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
				defer cancel()
				r, err := s.ShouldRateLimit(ctx, request(describe("a", "")))
				assert.NoError(t, err)
				assert.Equal(t, isOK, r.GetOverallCode())
			})
		}
		all.Wait()
		time.Sleep(time.Second)
		assert.EqualValues(t, 69, ask(t, s, describe("a", "")).Statuses[0].LimitRemaining)
	})
}
