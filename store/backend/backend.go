// Package backend is for authors of stores. It has the interface that a store implements for package store, and the
// decisions that every store must take alike, written in Go with the arithmetic of package rate. Programs that use limiters
// need only packages store, weirredis and weirpostgres.
//
// backend.go has the interface, definition.go has the limits that instances agree on, and decide.go has what a store keeps
// for one key, how that is converted, and how a store decides.
package backend

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/weir-go/weir/rate"
)

// ErrDefinition marks an error of Load or Define that concerns only the limiter of that name, for example because its
// definition is broken or another session keeps it locked. The limiter answers by its outage policy, with that error,
// and Reconfigure returns it. It does not count as a failure of the store.
var ErrDefinition = errors.New("store: the definition cannot be read or written")

// A Backend keeps the state of limiters where many instances can reach it. Queues, coalescing, borrowed blocks, caching
// and outage policies are in package store, the same for all backends. Package storetest has a conformance suite.
//
// Each method takes one round trip if the store allows it, decides by the store's own clock, and is safe for use by
// many goroutines at once. An error means that it is not known what was carried out, and that the store may be away. If
// only some keys are affected, their Outcome is [Failed] or [Unreachable] instead; one key's error never fails the
// other keys of the same call. A method returns when ctx ends, or soon after, and never repeats what may have been
// carried out.
//
// A decision that changes nothing need not be written. Numbers below 0 count as 0.
type Backend interface {
	// Decide decides all batches, each atomically. No two batches have the same key. They are sorted by name and key, so
	// that two calls lock their keys in the same order.
	Decide(ctx context.Context, batches []*Batch) error

	// Replace writes Next for each key whose stored state is Old. It is called after an [OutdatedState]. The
	// replacements are sorted by name and key, and no two have the same key.
	Replace(ctx context.Context, replacements []*Replacement) error

	// Acquire takes permits of concurrency limiters, one lease for each request; some can be rejected. Renew extends
	// leases. Release ends leases and notifies instances with waiting callers. The requests are sorted by name and key.
	Acquire(ctx context.Context, requests []*LeaseRequest) error
	Renew(ctx context.Context, requests []*LeaseRequest) error
	Release(ctx context.Context, requests []*LeaseRequest) error

	// Load returns the definition of that name, or nil if there is none, and the store's time in µs since 1970. An
	// error of Load or Define that concerns only this definition wraps [ErrDefinition].
	Load(ctx context.Context, name string) (d *Definition, now int64, err error)

	// Define stores next if the stored definition of the same name has the version old, and notifies all instances. If
	// old is 0, it stores next only if no definition is stored; all versions are larger than 0. If next has the version old,
	// too, only its Terms differ. Define reports whether it stored next.
	Define(ctx context.Context, old int64, next *Definition) (bool, error)

	// Listen calls notice with the notices of all instances, from one goroutine, until ctx ends or the connection is
	// lost. When the connection is set up, so that no later notice is missed, Listen calls ready once. A Backend that
	// cannot listen returns [errors.ErrUnsupported]; then limiters poll.
	Listen(ctx context.Context, ready func(), notice func(Notice)) error

	// Close closes what the Backend itself has opened, and nothing that it was given.
	Close() error
}

// A Result is what became of a [Batch], a [Replacement] or a [LeaseRequest].
type Result struct {
	Outcome Outcome
	Err     error // Failed, Unreachable: why
}

// Fail sets the outcome [Failed] or [Unreachable].
func (r *Result) Fail(outcome Outcome, err error) { r.Outcome, r.Err = outcome, err }

// Answered reports whether the outcome is set.
func (r *Result) Answered() bool { return r.Outcome != 0 }

// Valid returns the elements that pass the check. The others have the outcome [Failed], and an error that begins with what.
func Valid[T interface {
	Fail(outcome Outcome, err error)
}](all []T, what string, check func(T) error) []T {
	invalid := func(x T) bool {
		err := check(x)
		if err != nil {
			x.Fail(Failed, fmt.Errorf("%s: %w", what, err))
		}
		return err != nil
	}
	if !slices.ContainsFunc(all, invalid) { // the usual case needs no copy
		return all
	}
	return slices.DeleteFunc(slices.Clone(all), invalid)
}

// A Batch is all requests about one key in one round trip.
type Batch struct {
	Definition *Definition
	Key        string // "" for a limiter that is not partitioned
	Requests   []Request
	// At, for a calendar, is a time in the window by which to decide, in µs since 1970. If Now is not in it, nothing is decided.
	At int64

	// The answers.

	Result
	Now     int64      // the store's time of the decision, in µs since 1970
	State   rate.State // Decided: after the requests
	Granted []int64    // Decided: see [Definition.Decide]; made by the caller, with one element for each request
	Stored  *State     // OutdatedState: the stored state
	Version int64      // OutdatedDefinition: the version of the newer definition
}

// An Outcome is the result of a [Batch], a [Replacement] or a [LeaseRequest].
//
//	                    carried out   counts as away
//	Decided             yes           no
//	OutdatedDefinition  no            no               a newer definition of the limiter exists
//	OutdatedState       no            no               the key's state is of an older definition
//	Failed              not known     no               only this key is affected: what is stored under it is broken, perhaps
//	Unreachable         not known     if repeated      the shard of the key could not be reached: see [Sharded]
//	OtherWindow         no            no               Now is not in the window of the calendar: see [Windowed]
//
// As soon as Define has returned, requests with an older definition have the outcome OutdatedDefinition for every key, also
// for a key without a state. A key whose state is of a newer definition has it even if the store has lost that definition.
// After OutdatedState, the caller converts all such states of a round trip, calls Replace once, and sends the batches again.
type Outcome uint8

// The outcomes. A Backend always sets one; the zero Outcome is not used.
const (
	Decided Outcome = iota + 1
	OutdatedDefinition
	OutdatedState
	Failed
	Unreachable
	OtherWindow
)

// A Replacement is a state that is to be written in place of the one that was read.
type Replacement struct {
	Definition *Definition // of Next
	Key        string
	Old, Next  State

	// The answers.

	Result      // Decided, Failed or Unreachable
	Done   bool // reports whether Old was stored and was replaced by Next
}

// A LeaseRequest acquires, renews or releases a lease of permits of a concurrency limiter. With Permits == 0, Acquire
// leases nothing and reports how many permits are in use.
//
// A lease ends when it is released, or TTL after it was acquired or last renewed. Then its permits are free, and later
// requests with its ID have no effect. Acquire with the ID of a lease that has not ended renews that lease. Renew and
// Release ignore the Version of Definition.
type LeaseRequest struct {
	Definition *Definition
	Key        string
	ID         string // unique among the leases of all instances
	Permits    int64
	TTL        int64 // µs
	// Fence is the fencing token, which grows with every lease of the key. Acquire sets it. Renew and Release have no
	// effect on a lease with another token; 0 matches every token.
	Fence int64
	// Waiting reports whether the caller waits, if rejected, for the notice of a Release.
	Waiting bool

	// The answers.

	Result
	// OK reports, for Acquire, whether the permits were granted or, with Permits == 0, whether a permit is free. For Renew
	// and Release, OK reports whether the lease had not ended.
	OK    bool
	InUse int64 // Acquire: the permits in use, including those just granted
	// OutdatedDefinition: the version of the newer definition.
	Version int64
	// NextExpiry is set if Acquire was rejected: the µs until the first lease ends, if that lease is not renewed; 0 if
	// not known.
	NextExpiry int64
}

// A Notice tells all instances what happened at one of them.
type Notice struct {
	Name string
	Key  string
	// Released reports that permits of a concurrency limiter may be free. Otherwise the limiter has a new definition.
	Released bool
}

// A Sharded [Backend] keeps its keys in shards that can fail separately, such as the servers of a Redis Cluster. A
// Store tracks the health of each shard, and calls each shard in separate round trips.
type Sharded interface {
	// ShardOf returns the name of the shard that has the state and the leases of a key. The definition of the limiter
	// is in the shard of the key "". The name should be one that an operator recognizes, such as a server's address. ""
	// means that the shard is not known yet.
	//
	// The shard of a key changes when the store moves the key. ShardOf is called for each request; it must be fast and
	// must not wait for the store.
	ShardOf(name, key string) string
}

// A Pooled is a [Backend] whose calls share connections.
type Pooled interface {
	// Connections returns how many calls can be under way at once, to one shard if the Backend is [Sharded]. Further calls
	// wait. A Store makes half as many decisions at once, at most, and so with acquisitions and releases of leases; without
	// Connections, 32 of each.
	Connections() int
}
