package weirrls

import (
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/transport/internal/admission"
)

// PerKey returns a limiter for [Limit.Partitioned], with a limiter of factory for each key. If o is nil, the defaults
// apply. Clients can often make up values of descriptors, so a MaxPartitions of 0 is 100,000 here; with -1 the
// number of keys is not bounded. The error is a [weir.OptionsError].
func PerKey(factory limiter.Factory[string], o *limiter.PartitionedOptions) (*limiter.PartitionedLimiter[string, string], error) {
	return admission.PerKey("weirrls", factory, o)
}
