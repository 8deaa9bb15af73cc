package weirrls

import (
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/transport/internal/admission"
)

// DefaultMaxKeys is the bound on the number of keys of [PerKey], and of [NewCounters] for each unit.
const DefaultMaxKeys = admission.DefaultMaxPartitions

// PerKey returns a limiter that has one made by factory for each counter of a rule, for [Limit.Partitioned]. If o is
// nil, the defaults apply. Clients can often make up values of descriptors, so a MaxPartitions of 0 is [DefaultMaxKeys]
// here; with -1 the number of counters is not bounded. The error is a [weir.OptionsError].
func PerKey(factory limiter.Factory[string], o *limiter.PartitionedOptions) (*limiter.PartitionedLimiter[string, string], error) {
	return admission.PerKey("weirrls", factory, o)
}
