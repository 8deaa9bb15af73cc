package weirhttp

import (
	"context"
	"errors"
	"iter"
	"net/http"

	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/transport/internal/admission"
)

// transport has the names and errors of this package for package admission.
var transport = &admission.Transport[*http.Request]{
	Package: "weirhttp", ErrNotCharged: ErrNotCharged, ErrPartialRefund: ErrPartialRefund,
	Fields: admission.Fields{ // in the form of [http.CanonicalHeaderKey]
		Policy: "Ratelimit-Policy", Limit: "Ratelimit",
		LegacyLimit: "X-Ratelimit-Limit", LegacyRemaining: "X-Ratelimit-Remaining", LegacyReset: "X-Ratelimit-Reset",
	},
}

// Errors of [Charge].
var (
	// ErrNotCharged: no such policy has granted the request anything, or the
	// handler has returned.
	ErrNotCharged = errors.New("weirhttp: no policy to charge")
	// ErrPartialRefund: the limiter can take back only a whole lease, because it
	// lends its permits or is not one of package limiter.
	ErrPartialRefund = errors.New("weirhttp: the lease cannot be refunded in part")
)

// The events of this package, in addition to those of strategies/ratelimit.
const (
	// EventFailed: a limiter could not decide, and the request was rejected. Err has
	// the cause. Its severity is Error.
	EventFailed = admission.EventFailed
	// EventFailedOpen: a limiter could not decide, and the request was admitted
	// because of [Policy.FailOpen]. Its severity is Warning.
	EventFailedOpen = admission.EventFailedOpen
)

// Charge corrects what a request has cost, once that is known. It takes n more permits; if n is negative, it gives -n
// permits back as if they had not been taken. It applies to the named policies or, without names, to all policies that
// are [Policy.Metered].
//
//	limits.Handler(completions, "tokens-per-minute") // Cost is an estimate, Metered
//	…
//	weirhttp.Charge(r.Context(), used-estimate)
//
// It never waits, and works after the client has gone. Buckets and windows go into debt: they reject requests until
// enough permits have come back. A limiter that lends its permits, or is not one of package limiter, grants only what
// it has, and those permits go back when the handler returns. charged is how many permits the request costs more than
// before, below 0 for a refund. If several policies are corrected by different numbers, charged is the number nearest
// to 0.
//
// Corrections of one request follow each other, and the end of the request waits for the last one. So Adjust of a limiter of
// the program must not call Charge or LeaseFrom.
//
// The error is or joins [ErrNotCharged], [ErrPartialRefund] and errors of limiters.
func Charge(ctx context.Context, n int, policies ...string) (charged int, err error) {
	return transport.Charge(ctx, n, policies...)
}

// LeaseFrom returns the lease that the last policy of the innermost route granted to the request. ok is false if there
// is none: the route has no policies, the policy admitted the request without a grant, or the handler has returned.
//
// The lease is released when the handler returns. A handler that no longer needs it can release it earlier.
// It must not call Refund or Adjust of the lease, whose permits could then come back twice: [Charge] corrects the cost.
func LeaseFrom(ctx context.Context) (l limiter.Lease, ok bool) { return transport.LeaseFrom(ctx) }

// Leases returns an iterator over the leases of the request, the last one first, with the name of their policy. The
// leases of policies that are pipelines are not among them.
func Leases(ctx context.Context) iter.Seq2[string, limiter.Lease] { return transport.Leases(ctx) }
