package bench

import (
	"math/bits"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// A histogram counts durations with an error of 3 % at the most, and allocates nothing. The zero histogram is empty.
type histogram struct {
	counts [64 << fine]uint64
	total  uint64
}

// Each power of two is divided into 1<<fine slots.
const fine = 5

func (h *histogram) add(d time.Duration) {
	h.counts[slot(uint64(max(d, 0)))]++
	h.total++
}

// slot returns the index at which ns is counted. It is made of the leading bits of ns and of how many bits follow them.
func slot(ns uint64) int {
	shift := max(0, bits.Len64(ns)-fine-1)
	return shift<<fine + int(ns>>shift)
}

// least is the smallest number of nanoseconds that is counted in a slot.
func least(slot int) uint64 {
	shift := max(0, slot>>fine-1)
	return uint64(slot-shift<<fine) << shift
}

func (h *histogram) merge(other *histogram) {
	for i, n := range other.counts {
		h.counts[i] += n
	}
	h.total += other.total
}

func (h *histogram) quantile(q float64) time.Duration {
	rank := uint64(q * float64(h.total))
	for i, n := range h.counts {
		if rank < n {
			return time.Duration(least(i))
		}
		rank -= n
	}
	return 0
}

func TestHistogram(t *testing.T) {
	for _, d := range []time.Duration{0, 1, 31, 32, 33, 63, 64, 1000, 12345, time.Second, time.Hour, 1<<63 - 1} {
		var h histogram
		h.add(d)
		assert.InEpsilon(t, 1+float64(d), 1+float64(h.quantile(0.5)), 0.035, d)
	}
	var h, other histogram
	for i := range 100 {
		h.add(time.Duration(i) * time.Microsecond)
		other.add(time.Second)
	}
	assert.InEpsilon(t, 50*time.Microsecond, h.quantile(0.5), 0.035)
	assert.InEpsilon(t, 99*time.Microsecond, h.quantile(0.99), 0.035)
	h.merge(&other)
	assert.InEpsilon(t, time.Second, h.quantile(0.99), 0.035)
}
