package simulate

import (
	"math"
	"math/bits"
	"time"
)

// A histogram counts lengths of time. Its buckets are the nanoseconds up to 2⁷, and from then on 2⁷ for each power of two,
// as in HdrHistogram: each is less than one part in a hundred wide.
type histogram struct {
	buckets []uint32
	count   int64
	sum     float64
	max     time.Duration
}

const subBits = 7

// bucketOf returns the bucket of d, which is at least 0.
func bucketOf(d time.Duration) int {
	v := uint64(d)
	shift := max(bits.Len64(v)-subBits-1, 0)
	return shift<<subBits + int(v>>shift)
}

// lowest returns the shortest length of time in a bucket.
func lowest(bucket int) time.Duration {
	shift := max(bucket>>subBits-1, 0)
	return time.Duration(bucket-shift<<subBits) << shift
}

// add adds d.
func (h *histogram) add(d time.Duration) {
	d = max(d, 0)
	i := bucketOf(d)
	if i >= len(h.buckets) {
		h.buckets = append(h.buckets, make([]uint32, i+1-len(h.buckets))...)
	}
	h.buckets[i]++
	h.count++
	h.sum += float64(d)
	h.max = max(h.max, d)
}

// quantiles returns what the histogram has.
func (h *histogram) quantiles() Quantiles {
	q := Quantiles{Count: h.count, Max: h.max}
	if h.count == 0 {
		return q
	}
	q.Mean = time.Duration(h.sum / float64(h.count))
	targets := []struct {
		share float64
		to    *time.Duration
	}{{0.5, &q.P50}, {0.9, &q.P90}, {0.95, &q.P95}, {0.99, &q.P99}, {0.999, &q.P999}}
	seen := int64(0)
	for i, n := range h.buckets {
		seen += int64(n)
		for len(targets) > 0 && seen >= int64(math.Ceil(targets[0].share*float64(h.count))) {
			*targets[0].to = roundest(lowest(i), min(lowest(i+1)-1, h.max))
			targets = targets[1:]
		}
	}
	return q
}

// roundest returns the length of time with the fewest digits from least to most: nothing more is known of what is in a
// bucket.
func roundest(least, most time.Duration) time.Duration {
	for unit := time.Duration(1e18); unit > 1; unit /= 10 {
		if d := most / unit * unit; d >= least && d > 0 {
			return d
		}
	}
	return most
}
