package weirgrpc

import (
	"context"
	"errors"
	"iter"

	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/transport/internal/admission"
)

// Errors of [Charge].
var (
	// ErrNotCharged: no policy of that name has granted the call permits, no granting
	// policy is [Policy.Metered], or the handler has returned.
	ErrNotCharged = errors.New("weirgrpc: no policy to charge")
	// ErrPartialRefund: the limiter can take back only a whole lease, because it
	// lends its permits or is not one of package limiter.
	ErrPartialRefund = errors.New("weirgrpc: the lease cannot be refunded in part")
)

// The events of this package, in addition to those of strategies/ratelimit.
const (
	// EventFailed: a limiter could not decide, and the call was rejected. Err has the
	// cause. Its severity is Error.
	EventFailed = admission.EventFailed
	// EventFailedOpen: a limiter could not decide, and the call was admitted because of
	// [Policy.FailOpen]. Its severity is Warning.
	EventFailedOpen = admission.EventFailedOpen
)

// transport has the names and errors of this package for package admission.
var transport = &admission.Transport[*Request]{
	Package: "weirgrpc", ErrNotCharged: ErrNotCharged, ErrPartialRefund: ErrPartialRefund,
	Fields: admission.Fields{
		Policy: "ratelimit-policy", Limit: "ratelimit",
		LegacyLimit: "x-ratelimit-limit", LegacyRemaining: "x-ratelimit-remaining", LegacyReset: "x-ratelimit-reset",
	},
}

// Charge corrects the cost of a call once it is known. It takes n more permits; if n is negative, it gives -n permits
// back as if they had not been taken. It applies to the named policies or, without names, to all policies that are
// [Policy.Metered].
//
//	"tokens-per-minute": {Limit: weirgrpc.Of(tokens), Cost: estimate, Metered: true}
//	…
//	weirgrpc.Charge(ctx, used-estimated) // in the handler; for a stream, with stream.Context()
//
// It never waits, and works after the client has gone. Buckets and windows go into debt: they reject calls until enough
// permits have come back. A limiter that lends its permits, or is not one of package limiter, grants only what it has,
// and those permits go back when the handler returns. For a policy with [StreamReceived], Charge corrects the cost of the
// last message that the handler has received. It cannot correct policies with [StreamAdmit] or [StreamSent].
//
// Corrections of one call follow each other, and the end of the call waits for the last one. So Adjust of a limiter of the
// program must not call Charge or LeaseFrom.
//
// charged is the number of permits added to the cost; it is negative for a refund. If the policies differ in it, charged
// is the number nearest to 0. The error is or joins [ErrNotCharged], [ErrPartialRefund] and errors of limiters.
func Charge(ctx context.Context, n int, policies ...string) (charged int, err error) {
	return transport.Charge(ctx, n, policies...)
}

// LeaseFrom returns the lease that the call was granted last. ok is false if it has none: the method has no policies, they
// admitted the call without a grant, or the handler has returned.
//
// The lease is released when the handler returns. A handler that no longer needs it can release it earlier.
// It must not call Refund or Adjust of the lease, whose permits could then come back twice: [Charge] corrects the cost.
func LeaseFrom(ctx context.Context) (l limiter.Lease, ok bool) { return transport.LeaseFrom(ctx) }

// Leases returns an iterator over the leases of the call, the last one first, each with the name of its policy. It leaves
// out leases inside a pipeline.
func Leases(ctx context.Context) iter.Seq2[string, limiter.Lease] { return transport.Leases(ctx) }

// PerKey returns a limiter for [ByKey] that has a limiter of factory for each key. If o is nil, the
// defaults apply. Clients can often make up keys, so a MaxPartitions of 0 is 100,000 here; with -1 the
// number of keys is not bounded. The error is a [weir.OptionsError].
func PerKey(factory limiter.Factory[string], o *limiter.PartitionedOptions) (*limiter.PartitionedLimiter[string, string], error) {
	return admission.PerKey("weirgrpc", factory, o)
}
