package heavyhitters

import (
	"fmt"
	"hash/maphash"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var seed = maphash.MakeSeed()

func add[K comparable](c *Counter[K], key K) { c.Add(key, maphash.Comparable(seed, key)) }

// checkSketch checks what always holds between the arrays of a sketch.
func checkSketch[K comparable](t *testing.T, s *sketch[K]) {
	t.Helper()
	require.Len(t, s.least, len(s.places))
	found := 0
	for i, first := range s.chains {
		for j := first; j != 0; j = s.places[j-1].next {
			require.EqualValues(t, i, s.places[j-1].hash%chains)
			found++
		}
	}
	require.Equal(t, len(s.places), found, "each place is in one chain")
	for i, place := range s.least {
		require.EqualValues(t, i, s.places[place].inHeap)
		require.GreaterOrEqual(t, s.places[place].count, s.places[s.least[max(i-1, 0)/2]].count)
	}
}

// Every key's true count is in its bounds, and a key with more than a share of all is there.
func TestSketch_BoundsOfZipfKeys(t *testing.T) {
	const n = 300_000
	for _, exponent := range []float64{1.01, 1.2, 2} {
		t.Run(fmt.Sprint(exponent), func(t *testing.T) {
			keys, hashes := zipfKeys(n, exponent)
			exact := map[string]int64{}
			s := newSketch[string](0)
			for i, key := range keys {
				s.count(key, hashes[i], 1)
				exact[key]++
			}
			checkSketch(t, s)
			counted, sum := map[string]bool{}, int64(0)
			for _, c := range s.counts(0) {
				assert.LessOrEqual(t, exact[c.Key], c.Count)
				assert.GreaterOrEqual(t, exact[c.Key], c.Count-c.Error)
				assert.LessOrEqual(t, c.Error, int64(n/Places))
				counted[c.Key] = true
				sum += c.Count
			}
			assert.EqualValues(t, n, sum)
			for key, times := range exact {
				assert.True(t, times <= n/Places || counted[key], "%s, %d times", key, times)
			}
		})
	}
}

func TestCounter_ExactWhileRare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c Counter[int]
		assert.Empty(t, c.Top(10))
		exact := map[int]int64{}
		for i := range 20_000 {
			key := i % (1 + i%Places)
			add(&c, key)
			exact[key]++
			time.Sleep(11 * time.Microsecond) // less than 100,000 a second
		}
		got := map[int]int64{}
		for _, k := range c.Top(math.MaxInt) {
			got[k.Key] = k.Count
			assert.Zero(t, k.Error)
		}
		assert.Equal(t, exact, got)
	})
}

// A flood is sampled, and after it each call counts again.
func TestCounter_SamplesAFlood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c Counter[string]
		c.Top(0)
		const n = 2_000_000
		for i := range n {
			key := "often"
			if i%10 == 0 {
				key = "seldom"
			}
			add(&c, key)
			if i%4 == 0 {
				time.Sleep(time.Microsecond) // four million a second
			}
		}
		assert.EqualValues(t, 64, c.current.Load().weight.Load())
		top := c.Top(2)
		require.Len(t, top, 2)
		assert.Equal(t, "often", top[0].Key)
		assert.InDelta(t, 0.9*n, top[0].Count, 6*math.Sqrt(63*0.9*n))
		assert.InDelta(t, 0.1*n, top[1].Count, 6*math.Sqrt(63*0.1*n))

		time.Sleep(time.Second)
		c.Top(0) // as a page does that is open
		add(&c, "once")
		assert.Contains(t, c.Top(3), Count[string]{Key: "once", Count: 1})
	})
}

func TestCounter_EndsAMinuteAfterTheLastTop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c Counter[string]
		add(&c, "before")
		assert.False(t, c.Counting())
		assert.Empty(t, c.Top(1))
		add(&c, "a")
		for range 5 {
			time.Sleep(Keep - time.Nanosecond)
			synctest.Wait()
			assert.Equal(t, []Count[string]{{Key: "a", Count: 1}}, c.Top(1))
		}
		time.Sleep(Keep)
		synctest.Wait()
		assert.False(t, c.Counting())
		add(&c, "b")
		assert.Empty(t, c.Top(1))
	})
}

// What was made in a bubble has a timer that never fires; the next Top outside begins again.
func TestCounter_LeavesABubble(t *testing.T) {
	var c Counter[string]
	synctest.Test(t, func(*testing.T) {
		c.Top(1)
		add(&c, "inside")
	})
	assert.Empty(t, c.Top(1))
	add(&c, "outside")
	assert.Len(t, c.Top(1), 1)
	c.Close()
}

func TestCounter_Close(t *testing.T) {
	var c Counter[string]
	c.Top(1)
	c.Close()
	add(&c, "a")
	assert.Nil(t, c.Top(1))
	assert.False(t, c.Counting())
}

func TestCounter_Top(t *testing.T) {
	var c Counter[string]
	c.Top(0)
	for i, key := range []string{"a", "b", "c"} {
		for range i + 1 {
			add(&c, key)
		}
	}
	for n, want := range map[int][]Count[string]{
		-1: {}, 0: {}, 1: {{Key: "c", Count: 3}}, 2: {{Key: "c", Count: 3}, {Key: "b", Count: 2}},
		9: {{Key: "c", Count: 3}, {Key: "b", Count: 2}, {Key: "a", Count: 1}},
	} {
		assert.Equal(t, want, c.Top(n), "%d", n)
	}
	c.Close()
}

// Calls that meet are counted, too; run it with -race.
func TestCounter_Concurrent(t *testing.T) {
	var c Counter[string]
	c.Top(0)
	keys, hashes := zipfKeys(20_000, 1.2)
	var wg sync.WaitGroup
	stop := make(chan struct{})
	wg.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				c.Top(10)
			}
		}
	})
	var adders sync.WaitGroup
	for range 4 {
		adders.Go(func() {
			for i := range keys {
				c.Add(keys[i], hashes[i])
			}
		})
	}
	adders.Wait()
	close(stop)
	wg.Wait()
	add(&c, "last") // takes what was missed
	s := c.current.Load()
	checkSketch(t, s)
	sum := s.missed.Load()
	for _, k := range c.Top(Places) {
		sum += k.Count
	}
	assert.InDelta(t, 80_000, sum, 6*math.Sqrt(63*80_000)+64)
	c.Close()
}

// A million keys that come once each do not drive out the one that comes often.
func TestCounter_FloodOfKeys(t *testing.T) {
	var c Counter[int]
	c.Top(0)
	for i := range 1_000_000 {
		add(&c, i)
		if i%50 == 0 {
			add(&c, -1)
		}
	}
	top := c.Top(1)
	require.Len(t, top, 1)
	assert.Equal(t, -1, top[0].Key)
	assert.InDelta(t, 20_000, top[0].Count, 6*math.Sqrt(63*20_000)+1_020_000/Places)
	assert.Len(t, c.current.Load().places, Places)
	c.Close()
}

type named string

func TestCounter_LongKeys(t *testing.T) {
	var c Counter[named]
	c.Top(0)
	long := named(strings.Repeat("x", 1<<20))
	add(&c, long+"1")
	add(&c, long+"2")
	add(&c, long+"2")
	add(&c, long[:MaxText])
	top := c.Top(3)
	require.Len(t, top, 3)
	assert.Equal(t, []int64{2, 1, 1}, []int64{top[0].Count, top[1].Count, top[2].Count}, "keys that begin alike are told apart")
	for _, k := range top {
		assert.LessOrEqual(t, len(k.Key), MaxText+1, "what stays in memory")
		assert.LessOrEqual(t, len(k.Text()), MaxText)
	}
	texts := map[string]int{}
	for _, k := range top {
		texts[k.Text()]++
	}
	assert.Equal(t, []int{1, 2}, slices.Sorted(maps.Values(texts)), "only the whole key has no ellipsis")
	c.Close()
}

func TestCut(t *testing.T) {
	assert.Equal(t, "short", Cut("short"))
	assert.Equal(t, strings.Repeat("x", MaxText), Cut(strings.Repeat("x", MaxText)))
	for _, long := range []string{strings.Repeat("x", 500), strings.Repeat("ü", 150), strings.Repeat("日本", 100), strings.Repeat("\x80", 300)} {
		got := Cut(long)
		assert.LessOrEqual(t, len(got), MaxText)
		assert.Greater(t, len(got), MaxText-8)
		assert.True(t, strings.HasSuffix(got, "…"))
		assert.Equal(t, utf8.ValidString(long), utf8.ValidString(got))
	}
}

func TestAdd_Allocations(t *testing.T) {
	keys, hashes := zipfKeys(10_000, 1.01)
	var c Counter[string]
	i := 0
	addNext := func() {
		c.Add(keys[i%len(keys)], hashes[i%len(keys)])
		i++
	}
	assert.Zero(t, testing.AllocsPerRun(1000, addNext), "while it does not count")
	c.Top(0)
	assert.Zero(t, testing.AllocsPerRun(20_000, addNext), "while it counts")
	s := newSketch[string](0)
	assert.Zero(t, testing.AllocsPerRun(20_000, func() {
		s.count(keys[i%len(keys)], hashes[i%len(keys)], 1)
		i++
	}), "while keys take each other's places")
	c.Close()
}

// What a Counter takes while it counts is what the documentation of TopRejected says.
func TestSketch_Size(t *testing.T) {
	if strconv.IntSize == 32 {
		t.Skip("strings and ints take half as much")
	}
	s := newSketch[string](0)
	size := cap(s.places)*int(unsafe.Sizeof(place[string]{})) + (cap(s.least)+cap(s.chains))*4
	assert.InDelta(t, 60_000, size, 3000)
}
