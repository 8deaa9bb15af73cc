package simulate

import (
	"cmp"
	"maps"
	"math"
	"math/bits"
	"slices"
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

func bucketOf(d time.Duration) int {
	v := uint64(d)
	shift := max(bits.Len64(v)-subBits-1, 0)
	return shift<<subBits + int(v>>shift)
}

func lowest(bucket int) time.Duration {
	shift := max(bucket>>subBits-1, 0)
	return time.Duration(bucket-shift<<subBits) << shift
}

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

// roundest returns the length of time with the fewest digits from least to most. A bucket does not know more digits of what
// is in it.
func roundest(least, most time.Duration) time.Duration {
	for unit := time.Duration(1e18); unit > 1; unit /= 10 {
		if d := most / unit * unit; d >= least && d > 0 {
			return d
		}
	}
	return most
}

// A mostOf finds the most permits in any window of one length: of all requests, and of one key.
type mostOf struct {
	all  window
	keys map[string]*window
	best *window // of keys
	key  string  // of best
}

// A window has the permits of the last window of one length. An instant at its beginning is in it, one at its end is not.
type window struct {
	length time.Duration
	stamps []stamp
	sum    int64
	most   int64
	at     time.Duration
}

type stamp struct {
	at      time.Duration
	permits int64
}

func newMost(length time.Duration) *mostOf {
	return &mostOf{all: window{length: length}, keys: map[string]*window{}}
}

// mostPermits is how many permits of a call count at most, so that no sum of calls overflows.
const mostPermits = 1 << 30

// add adds permits. Without kept, only all requests have them.
func (m *mostOf) add(at time.Duration, key string, permits int64, kept bool) {
	permits = min(permits, mostPermits)
	m.all.add(at, permits)
	if !kept {
		return
	}
	w := m.keys[key]
	if w == nil {
		w = &window{length: m.all.length}
		m.keys[key] = w
	}
	w.add(at, permits)
	if m.best == nil || w.most > m.best.most {
		m.best, m.key = w, key
	}
}

// add adds permits at a time that is not before the last one.
func (w *window) add(at time.Duration, permits int64) {
	old := 0
	for old < len(w.stamps) && at-w.stamps[old].at >= w.length {
		w.sum -= w.stamps[old].permits
		old++
	}
	if w.stamps = w.stamps[old:]; len(w.stamps) == 0 {
		w.stamps = nil
	}
	if n := len(w.stamps); n > 0 && w.stamps[n-1].at == at {
		w.stamps[n-1].permits += permits
	} else {
		w.stamps = append(w.stamps, stamp{at, permits})
	}
	if w.sum += permits; w.sum > w.most {
		w.most, w.at = w.sum, w.stamps[0].at
	}
}

func (m *mostOf) most() Most {
	found := Most{Window: m.all.length, Permits: m.all.most, At: m.all.at}
	if m.best != nil {
		found.Key, found.KeyPermits, found.KeyAt = m.key, m.best.most, m.best.at
	}
	return found
}

const shownKeys = 10

// fairness compares what keys got. unkept is how many executions had another key.
func fairness(keyed map[string]*keyCounts, unkept int64) KeyResult {
	result := KeyResult{Count: len(keyed), Unkept: unkept}
	all := make([]KeyCounts, 0, len(keyed))
	total := int64(0)
	for _, key := range slices.Sorted(maps.Keys(keyed)) {
		k := keyed[key]
		all = append(all, KeyCounts{Key: key, Offered: k.offered, Admitted: k.admitted, Rejected: k.rejected})
		total += k.admitted
	}
	if total > 0 {
		result.compare(all, float64(total))
	}
	if len(all) > 1 {
		result.MostOffered = mostKeys(all, func(k *KeyCounts) int64 { return k.Offered })
		result.MostRejected = mostKeys(all, func(k *KeyCounts) int64 { return k.Rejected })
	}
	return result
}

// given reports whether anything was admitted that keys can be compared by.
func (result *KeyResult) given() bool { return result.Jain > 0 }

// compare compares what keys got with their fair shares of total, which is above 0, and sorts them by that.
func (result *KeyResult) compare(all []KeyCounts, total float64) {
	shareFairly(all, total)
	sum, squares := 0.0, 0.0
	for i := range all {
		x := all[i].got()
		sum += x
		squares += x * x
		if all[i].Admitted == 0 && all[i].Fair >= 1 {
			result.Starved++
		}
	}
	result.Jain = sum * sum / (float64(len(all)) * squares)
	slices.SortStableFunc(all, func(a, b KeyCounts) int {
		return cmp.Or(cmp.Compare(a.got(), b.got()), cmp.Compare(a.Key, b.Key))
	})
	for _, k := range all[:min(shownKeys, len(all))] {
		if k.got() < 1 {
			result.Worst = append(result.Worst, k)
		}
	}
}

// mostKeys returns the keys of which a count is largest, without those of which it is 0.
func mostKeys(all []KeyCounts, count func(*KeyCounts) int64) []KeyCounts {
	slices.SortFunc(all, func(a, b KeyCounts) int {
		return cmp.Or(cmp.Compare(count(&b), count(&a)), cmp.Compare(a.Key, b.Key))
	})
	most := slices.Clone(all[:min(shownKeys, len(all))])
	return slices.DeleteFunc(most, func(k KeyCounts) bool { return count(&k) == 0 })
}

// got returns how much the key got, relative to its fair share.
func (k *KeyCounts) got() float64 { return float64(k.Admitted) / k.Fair }

// shareFairly sets the fair share of each key of total, which is above 0, and sorts the keys by what they asked for. The
// keys that asked for least get it all; what they leave is for the others.
func shareFairly(all []KeyCounts, total float64) {
	slices.SortStableFunc(all, func(a, b KeyCounts) int { return cmp.Compare(a.Offered, b.Offered) })
	for i := range all {
		all[i].Fair = min(float64(all[i].Offered), total/float64(len(all)-i))
		total -= all[i].Fair
	}
}
