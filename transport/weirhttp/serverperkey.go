package weirhttp

import (
	"net/http"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/validate"
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/transport/internal/admission"
)

// PerKey returns a limiter for [ByKey] that has a limiter of factory for each key. If o is nil, the
// defaults apply. Clients can often make up keys, so a MaxPartitions of 0 is 100,000 here; with -1 the
// number of keys is not bounded. The error is a [weir.OptionsError].
func PerKey(factory limiter.Factory[string], o *limiter.PartitionedOptions) (*limiter.PartitionedLimiter[string, string], error) {
	return admission.PerKey("weirhttp", factory, o)
}

// PerIP returns middleware that admits n requests of each client in a window that slides in ten steps, and so in any nine tenths
// of it. Others get 429 with Retry-After:
//
//	http.ListenAndServe(addr, weirhttp.PerIP(100, time.Minute)(mux))
//
// The client is the peer address of the connection; IPv6 addresses count by /64. Behind a proxy all requests come from
// the proxy: use [NewLimits] with [ClientAddress] there. All handlers that the returned middleware wraps share the
// limits, for up to 100,000 addresses at a time; a new address beyond that gets 503 until another has
// been idle for a window. Every answer has X-RateLimit-Limit, X-RateLimit-Remaining and X-RateLimit-Reset.
//
// PerIP is for route registration, and panics if n or window is below 1.
func PerIP(n int, window time.Duration) func(http.Handler) http.Handler {
	var problems validate.Problems
	problems.AtLeast("n", n, 1)
	problems.Positive("window", window)
	if err := problems.Err("weirhttp"); err != nil {
		panic(err)
	}
	perIP := weir.Must(PerKey(limiter.FactoryFor[string](limiter.SlidingWindowOptions{
		PermitLimit: n, Window: window, SegmentsPerWindow: segments(window),
	}), nil))
	limits := weir.Must(NewLimits(&LimitsOptions{Headers: Legacy, Policies: map[string]Policy{
		"per-ip": {Limit: ByKey(perIP, nil), Quota: int64(n), Window: window},
	}}))
	return weir.Must(limits.Wrap("per-ip"))
}

// segments returns the largest number up to 10 that divides window.
func segments(window time.Duration) int {
	for n := 10; n > 1; n-- {
		if window >= time.Duration(n) && window%time.Duration(n) == 0 {
			return n
		}
	}
	return 1
}
