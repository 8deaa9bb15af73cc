package backend

import (
	"context"
	"errors"
)

// ErrDefinition marks an error of [Backend] Load or Define that concerns only the limiter of that name: something else is
// stored in place of its definition, or another session keeps the definition locked. The limiter answers by its Outage,
// with that error. Reconfigure returns it, too. It never counts as a failure of the store.
var ErrDefinition = errors.New("store: the definition cannot be read or written")

// A Backend keeps the state of limiters where many instances can reach it. It is what a
// store has to bring; queues, coalescing, local leasing, caching, and what happens while the
// store is away are the same for all of them, and in this package. Package storetest has a
// suite that every Backend can be put through.
//
// Each method takes one round trip where the store allows that, decides by the store's
// own clock, and is safe for use by many goroutines at once. An error means that nothing
// is known of what has happened, and that the store may be away. If only some keys are affected,
// their Outcome is Failed or Unreachable instead. One key's error never fails the others that are asked
// about in the same call. A Backend returns when ctx ends, or soon after, and never repeats what may
// have been carried out.
//
// A decision that changes nothing need not be written down. Numbers below 0 count as 0.
type Backend interface {
	// Decide decides all batches, each of another key, atomically by key. Batches come
	// sorted by name and key, so that two calls lock their keys in the same order.
	Decide(ctx context.Context, batches []*Batch) error

	// Replace writes the state of each key whose stored state is Old. It answers Outcome OldState in
	// the same way. The replacements are sorted by name and key, and no key occurs twice.
	Replace(ctx context.Context, all []*Replacement) error

	// Acquire takes permits of concurrency limiters: as many leases as there are holds, of
	// which some may come out rejected. Renew puts off the end of leases. Release gives
	// them back, and tells those who wait elsewhere. Holds come sorted by name and key.
	Acquire(ctx context.Context, holds []*LeaseRequest) error
	Renew(ctx context.Context, holds []*LeaseRequest) error
	Release(ctx context.Context, holds []*LeaseRequest) error

	// Load returns the definition of that name, nil if there is none, and the time of the
	// store in microseconds since 1970. An error of Load or Define that is this definition's and says nothing of the
	// store wraps [ErrDefinition].
	Load(ctx context.Context, name string) (d *Definition, now int64, err error)

	// Define makes next the definition of its name if the one in force has the version
	// old, 0: if there is none, and tells all instances. It returns whether it did. Versions
	// are larger than 0.
	Define(ctx context.Context, old int64, next *Definition) (bool, error)

	// Listen calls notice for what happens at any instance, from one goroutine, until ctx
	// ends or the connection is lost. ready is called once, when nothing that happens
	// from then on will be missed. A Backend that cannot listen returns
	// [errors.ErrUnsupported]; then everything is polled.
	Listen(ctx context.Context, ready func(), notice func(Notice)) error

	// Close gives back what the Backend itself has opened, and nothing that was handed to
	// it.
	Close() error
}

// A Batch is what is asked of one key in one round trip.
type Batch struct {
	Definition *Definition
	Key        string // "" for a limiter that is not partitioned
	Requests   []Request

	// The answers.

	Outcome Outcome
	Err     error   // Failed, Unreachable: why
	Now     int64   // the store's time of the decision, µs since 1970
	State   State   // Decided: after the asks; OldState: as it is
	Granted []int64 // Decided: as [Definition.Decide] fills it; the caller makes it, as long as Asks
}

// An Outcome is what became of a [Batch] or a [LeaseRequest].
type Outcome uint8

// The outcomes. There is no zero Outcome: a Backend always sets one.
const (
	// Decided: the answers are there.
	Decided Outcome = iota + 1
	// OutdatedDefinition: there is a newer definition of the limiter, whose Version is in State.Grid of a
	// Batch, in Version of a Hold. Nothing was asked. That is so as soon as Define has returned,
	// also for a key that has no state, and where the state is of a newer definition than the store
	// has, which may have lost it.
	OutdatedDefinition
	// OutdatedState: the key's state is of an older definition, and is in State. Nothing was
	// asked. The caller converts those of a round trip, calls Replace once, and asks again.
	OutdatedState
	// Failed: the key itself cannot be asked: what is stored under it is broken, or something else
	// is. It is not known what has happened; Err says why. That says nothing of the store, which
	// does not count as away however often it happens.
	Failed
	// Unreachable: the part of the store that has the key could not be asked, and it is not known what
	// has happened; Err says why. It is what an error is for a store that is one part: after several
	// in a row the part counts as away. See [Sharded].
	Unreachable
)

// A Replacement is the state of a key that is to be written in place of the one that was read.
type Replacement struct {
	Definition *Definition // that of Next
	Key        string
	Old, Next  State

	// The answers.

	Outcome Outcome // Decided, Failed or Unreachable
	Err     error   // Failed, Unreachable: why
	Done    bool    // Old was what was stored, and Next is now
}

// A LeaseRequest is a lease of permits of a concurrency limiter. With Permits == 0 nothing is
// leased: it asks how many are in use.
//
// A lease ends when it is released, or TTL after it was given or last renewed. Then
// its permits are free, and whatever its holder still does with its ID is of no effect. A
// Hold with the ID of a lease that has not ended is that lease, renewed. Renew and Release
// are carried out under whatever definition.
type LeaseRequest struct {
	Definition *Definition
	Key        string
	ID         string // unique among all leases of all instances
	Permits    int64
	TTL        int64 // µs
	// Fence is larger with every lease of the key: what is written under a lease can be
	// refused where a larger one was seen. Hold sets it; Renew and Release of a lease with
	// another one have no effect, unless it is 0 for one that is not known.
	Fence int64
	// Waiting: if it is rejected, the asker waits for a Release to be told of.
	Waiting bool

	// The answers.

	Outcome Outcome
	Err     error // Failed, Unreachable: why
	// OK: Hold: granted, or with no Permits: at least one permit is free. Renew, Release:
	// the lease was still there.
	OK    bool
	InUse int64 // Hold: the permits in use, these included if they were granted
	// Version is that of the newer definition, where the Hold is Outdated.
	Version int64
	// NextExpiry is, where a Hold was rejected, how many µs from now the first lease ends if
	// nobody renews it; 0: not known.
	NextExpiry int64
}

// A Notice tells the instances of something that happened at one of them.
type Notice struct {
	Name string
	Key  string
	// Released: permits of a concurrency limiter may be free. Otherwise the limiter has a
	// new definition.
	Released bool
}

// A Sharded [Backend] keeps its keys in parts, one of which can be away while the others are there: the
// servers of a Redis Cluster, for example. A [Store] tracks the health of each part separately and asks each part
// in separate round trips. A Backend without this interface is one part.
type Sharded interface {
	// ShardOf returns the name of the part that has the state and the leases of a key of that limiter. The
	// limiter's definition is in the part of the key "". The name is one that an operator recognizes, such as
	// the address of a server. "" means that the part is not known yet.
	//
	// A key's part changes when the store moves the key. PartOf is called for each question, so it must be
	// fast and must not wait for the store.
	ShardOf(name, key string) string
}

// A Interruptible [Backend] says whether its methods return as soon as their context ends, whatever
// the network does. Calls of limiters with LimiterOptions.NoCoalescing are then made by the caller's
// goroutine, which saves handing them over to one that can be left behind.
type Interruptible interface {
	Interruptible() bool
}
