package simulate

import (
	"cmp"
	"maps"
	"slices"
)

// shownKeys is how many keys are in each list of a KeyResult.
const shownKeys = 10

// fairness compares what keys got. unkept is how many executions had another key.
func fairness(keyed map[string]*keyCounts, unkept int64) KeyResult {
	result := KeyResult{Count: len(keyed), Jain: 1, Unkept: unkept}
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
func mostKeys(all []KeyCounts, count func(*KeyCounts) int64) (most []KeyCounts) {
	for i := range all {
		k := &all[i]
		n := count(k)
		if n == 0 || len(most) == shownKeys && n < count(&most[shownKeys-1]) {
			continue
		}
		at, _ := slices.BinarySearchFunc(most, k, func(m KeyCounts, k *KeyCounts) int {
			return cmp.Or(cmp.Compare(n, count(&m)), cmp.Compare(m.Key, k.Key))
		})
		most = slices.Insert(most, at, *k)
		most = most[:min(shownKeys, len(most))]
	}
	return most
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
