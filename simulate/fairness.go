package simulate

import (
	"cmp"
	"maps"
	"slices"
)

// worstKeys is how many keys are in KeyResult.Worst.
const worstKeys = 10

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
	if total == 0 {
		return result
	}
	shareFairly(all, float64(total))
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
	for _, k := range all[:min(worstKeys, len(all))] {
		if k.got() < 1 {
			result.Worst = append(result.Worst, k)
		}
	}
	return result
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
