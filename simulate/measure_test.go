package simulate

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestHistogram_Buckets(t *testing.T) {
	check := func(d time.Duration) {
		i := bucketOf(d)
		assert.LessOrEqual(t, lowest(i), d)
		if above := lowest(i + 1); above > 0 { // the last bucket has no end
			assert.Less(t, d, above)
			assert.LessOrEqual(t, float64(above-lowest(i)), max(1, float64(d)/100), "less than one part in a hundred")
		}
	}
	for d := range time.Duration(2000) {
		check(d)
	}
	for shift := range 63 {
		for near := -2; near <= 2; near++ {
			check(max(time.Duration(1)<<shift+time.Duration(near), 0))
		}
	}
	check(math.MaxInt64)
}

func TestHistogram_Quantiles(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, n := range []int{1, 2, 9, 10, 1000, 5000} {
		var h histogram
		all, sum := make([]time.Duration, n), 0.0
		for i := range all {
			all[i] = time.Duration(math.Exp(30 * r.Float64()))
			h.add(all[i])
			sum += float64(all[i])
		}
		slices.Sort(all)
		q := h.quantiles()
		assert.EqualValues(t, n, q.Count)
		assert.Equal(t, all[n-1], q.Max)
		assert.InDelta(t, sum/float64(n), float64(q.Mean), 1)
		for share, got := range map[float64]time.Duration{0.5: q.P50, 0.9: q.P90, 0.95: q.P95, 0.99: q.P99, 0.999: q.P999} {
			exact := all[int(math.Ceil(share*float64(n)))-1]
			assert.InDelta(t, exact, got, max(float64(exact)/100, 1), "%v of %d", share, n)
			digits := strings.TrimRight(strconv.FormatInt(int64(got), 10), "0")
			if got != q.Max {
				assert.LessOrEqual(t, len(digits), 4, "%v of %d is %v: nothing more is known", share, n, got)
			}
		}
	}
	assert.Zero(t, new(histogram).quantiles())
}

// A length of time that all requests have is the quantile.
func TestHistogram_RoundNumbers(t *testing.T) {
	var h histogram
	for _, d := range []time.Duration{30 * time.Millisecond, 50 * time.Millisecond, 235 * time.Millisecond, time.Minute} {
		for range 100 {
			h.add(d)
		}
	}
	q := h.quantiles()
	assert.Equal(t, 50*time.Millisecond, q.P50)
	assert.Equal(t, time.Minute, q.P90)
}

// naiveFair returns the max-min fair shares: it gives all keys the same bit until they have what they asked for.
func naiveFair(offered []int64, total float64) []float64 {
	fair := make([]float64, len(offered))
	for total > 1e-9 {
		var hungry []int
		least := math.Inf(1)
		for i, n := range offered {
			if missing := float64(n) - fair[i]; missing > 1e-9 {
				hungry = append(hungry, i)
				least = min(least, missing)
			}
		}
		if len(hungry) == 0 {
			break
		}
		least = min(least, total/float64(len(hungry)))
		for _, i := range hungry {
			fair[i] += least
			total -= least
		}
	}
	return fair
}

func TestCompareKeys_Naive(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for range 300 {
		n := 1 + r.IntN(30)
		keyed := map[string]*keyCounts{}
		offered, total := make([]int64, n), 0.0
		for i := range n {
			k := &keyCounts{offered: 1 + r.Int64N(1+r.Int64N(100))}
			k.admitted = r.Int64N(k.offered + 1)
			keyed[fmt.Sprintf("%02d", i)] = k
			offered[i] = k.offered
			total += float64(k.admitted)
		}
		got := fairness(keyed, 0)
		assert.Equal(t, n, got.Count)
		if total == 0 {
			assert.Equal(t, KeyResult{Count: n}, got)
			continue
		}
		sum, squares, starved := 0.0, 0.0, 0
		type share struct {
			key string
			got float64
		}
		var shares []share
		for i, fair := range naiveFair(offered, total) {
			key := fmt.Sprintf("%02d", i)
			x := float64(keyed[key].admitted) / fair
			sum, squares = sum+x, squares+x*x
			if x == 0 && fair >= 1-1e-9 {
				starved++
			}
			shares = append(shares, share{key, x})
		}
		assert.InDelta(t, sum*sum/float64(n)/squares, got.Jain, 1e-6)
		assert.Equal(t, starved, got.Starved)
		slices.SortFunc(shares, func(a, b share) int { return cmp.Compare(a.got, b.got) })
		for i, w := range got.Worst {
			assert.InDelta(t, shares[i].got, w.got(), 1e-6)
		}
	}
}

// FuzzMostOf compares the most permits in any window with all windows that begin with a request.
func FuzzMostOf(f *testing.F) {
	f.Add([]byte{0, 1, 1, 5, 0, 2, 9, 1, 3, 10, 2, 0}, uint8(10))
	f.Add([]byte{1, 0, 0, 1, 0, 0, 1, 1, 1}, uint8(1))
	f.Fuzz(func(t *testing.T, data []byte, length uint8) {
		window := time.Duration(max(length, 1))
		type request struct {
			at      time.Duration
			key     string
			permits int64
			kept    bool
		}
		var all []request
		at := time.Duration(0)
		m := newMost(window)
		for ; len(data) >= 3 && len(all) < 100; data = data[3:] {
			at += time.Duration(data[0] % 16)
			q := request{at, fmt.Sprint(data[1] % 4), int64(data[2] % 8), data[1] < 250}
			all = append(all, q)
			m.add(q.at, q.key, q.permits, q.kept)
		}
		in := func(from time.Duration, counts func(request) bool) (sum int64) {
			for _, q := range all {
				if q.at >= from && q.at-from < window && counts(q) {
					sum += q.permits
				}
			}
			return sum
		}
		got := m.most()
		most, keyMost := int64(0), int64(0)
		for _, q := range all {
			most = max(most, in(q.at, func(request) bool { return true }))
			if q.kept {
				keyMost = max(keyMost, in(q.at, func(other request) bool { return other.kept && other.key == q.key }))
			}
		}
		assert.Equal(t, Most{Window: window, Permits: most, At: got.At, Key: got.Key, KeyPermits: keyMost, KeyAt: got.KeyAt}, got)
		assert.Equal(t, most, in(got.At, func(request) bool { return true }), "At is where they are")
		assert.Equal(t, keyMost, in(got.KeyAt, func(q request) bool { return q.kept && q.key == got.Key }))
	})
}

func TestMostOf_HugeCosts(t *testing.T) {
	m := newMost(10)
	for range 1000 {
		m.add(1, "a", 1<<62, true)
	}
	require.Equal(t, int64(1000<<30), m.most().KeyPermits)
}
