package weirhttp

import (
	"fmt"
	"net/http"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/limiter"
)

// PerIP returns middleware that lets each client make n requests within any window of
// time, and answers 429 with Retry-After to the rest:
//
//	http.ListenAndServe(addr, weirhttp.PerIP(100, time.Minute)(mux))
//
// A client is the address that the connection comes from, an IPv6 one by its /64.
// Behind a proxy that is the proxy: use [New] there, with [ClientAddress]. All handlers
// that one result of PerIP wraps share the limits, for [DefaultMaxPartitions] addresses
// at a time; an address beyond that gets 503 until others have been idle for a window.
// X-RateLimit-Limit, X-RateLimit-Remaining and X-RateLimit-Reset are in every answer.
//
// It panics if n or window is less than 1, as it is meant for code that sets up routes.
func PerIP(n int, window time.Duration) func(http.Handler) http.Handler {
	o := limiter.SlidingWindowOptions{PermitLimit: n, Window: window, SegmentsPerWindow: segments(window)}
	if err := o.Validate(); err != nil {
		panic(fmt.Sprintf("weirhttp: PerIP(%d, %v): %v", n, window, err))
	}
	perIP, err := PerKey(limiter.SlidingWindowFactory[string](o), limiter.PartitionedOptions{})
	if err != nil { // not with these options
		panic(err)
	}
	limits := weir.Must(New(Options{Headers: Legacy, Policies: map[string]Policy{
		"per-ip": {Partitioned: perIP, Quota: int64(n), Window: window},
	}}))
	return limits.MustWrap("per-ip")
}

// segments is up to 10, into which the window can be divided.
func segments(window time.Duration) int {
	for n := 10; n > 1; n-- {
		if window >= time.Duration(n) && window%time.Duration(n) == 0 {
			return n
		}
	}
	return 1
}
