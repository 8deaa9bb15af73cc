// Package limits answers questions about the options of limiters of any kind.
package limits

import "github.com/weir-go/weir/limiter"

// HasQueue reports whether a limiter with these options has a queue. Options that are not those of a limiter have none.
func HasQueue(options any) bool {
	switch o := options.(type) {
	case limiter.TokenBucketOptions:
		return o.QueueLimit > 0
	case limiter.FixedWindowOptions:
		return o.QueueLimit > 0
	case limiter.SlidingWindowOptions:
		return o.QueueLimit > 0
	case limiter.ConcurrencyOptions:
		return o.QueueLimit > 0
	default:
		return false
	}
}
