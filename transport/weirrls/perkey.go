package weirrls

import (
	"github.com/weir-go/weir/internal/validate"
	"github.com/weir-go/weir/limiter"
)

// DefaultMaxKeys is the bound on the number of keys of [PerKey], and of [NewCounters] for each unit.
const DefaultMaxKeys = 100_000

// PerKey returns a limiter that has one made by factory for each counter of a rule, for [Limit.Partitioned]. If o is
// nil, the defaults apply. Clients can often make up values of descriptors, so a MaxPartitions of 0 is [DefaultMaxKeys]
// here; with -1 the number of counters is not bounded. The error is a [weir.OptionsError].
func PerKey(factory limiter.Factory[string], o *limiter.PartitionedOptions) (*limiter.PartitionedLimiter[string, string], error) {
	if factory == nil {
		var problems validate.Problems
		problems.Add("factory", nil, "must not be nil")
		return nil, problems.Err("weirrls")
	}
	var options limiter.PartitionedOptions
	if o != nil {
		options = *o
	}
	switch options.MaxPartitions {
	case 0:
		options.MaxPartitions = DefaultMaxKeys
	case -1:
		options.MaxPartitions = 0
	}
	return limiter.NewPartitioned(func(key string) limiter.Partition[string] {
		return limiter.Partition[string]{Key: key, New: factory}
	}, &options)
}
