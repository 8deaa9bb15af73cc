// Package leases is how package custom makes leases, whose fields are those of package limiter.
package leases

// Owner is custom.Owner.
type Owner interface {
	Release(n int, tag int64)
	Refund(n int, tag int64)
}

// Package limiter sets the functions.
var (
	// Granted is a func(by Owner, n int, tag int64) limiter.Lease. If by is nil, the lease has nothing to give back.
	Granted any
	// Rejected is a func(retryAfter time.Duration, remaining int64) limiter.Lease. If remaining is negative, it is not known.
	Rejected any
)
