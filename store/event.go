package store

import (
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/weir-go/weir/limiter"
)

// An EventKind is what an [Event] tells of.
type EventKind uint8

// What an operator should know. There is no zero EventKind.
const (
	// EventStoreLost: Options.FailureThreshold calls have failed in a row, and the store, or the part of
	// it that Part names, counts as away. Err is the last failure. From now on each limiter answers for the
	// keys in it as its Outage says.
	EventStoreLost EventKind = iota + 1
	// EventStoreRecovered: a probe came back, and the store, or Part of it, is asked again. A part that
	// no key is in any more has recovered, too: its keys are asked for where they are now.
	EventStoreRecovered
	// EventRefundLost: permits could not be given back after a chain was rejected or a caller
	// had left; they are missing until time brings them back.
	EventRefundLost
	// EventLeaseLost: a lease of a concurrency limiter has ended though its holder has not
	// released it: it could not be renewed in time. Its permits may be in use elsewhere.
	EventLeaseLost
	// EventListenFailed: the store does not tell of what happens elsewhere; it is polled
	// instead, and if Err is not [errors.ErrUnsupported], listening is tried again.
	EventListenFailed
	// EventReconfigured: the limiter has new limits, set here or at another instance.
	EventReconfigured
	// EventOverruled: the limits that this limiter was made with are not in force, because newer ones are; see
	// LimiterOptions.Generation. Or the limiter is of another kind in the store, and nothing can be asked
	// until one of the two is changed. Err says which.
	EventOverruled
)

var eventNames = [...]string{
	"no event", "store lost", "store recovered", "refund lost", "lease lost", "listen failed", "reconfigured", "overruled",
}

// String says it in words.
func (k EventKind) String() string {
	if int(k) < len(eventNames) {
		return eventNames[k]
	}
	return fmt.Sprintf("EventKind(%d)", uint8(k))
}

// An Event is handed to [Options.OnEvent].
type Event struct {
	Kind    EventKind
	Limiter string        // the name; "" where it is about the whole store
	Shard   string        // StoreLost, StoreRecovered: the part of the store, see [backend.Sharded]; "": all of it
	Key     string        // the partition's; that of a key of more than 200 bytes is its SHA-256
	Permits int64         // RefundLost, LeaseLost
	Away    time.Duration // StoreRecovered: for how long the store was away
	Err     error
}

func (s *Store) report(e Event) { s.events.Add(e) }

// Keys of what is on the leases of shared limiters besides RetryAfter and Reason.
var (
	// OutageKey is on every answer that was given without the store because it is away,
	// granted or rejected: the reason.
	OutageKey = limiter.NewMetadataKey[error]("STORE_OUTAGE")
	// FenceKey is on the leases of concurrency limiters: a number that is larger with
	// every lease of the same key. Whatever is written under a lease can be refused by
	// whoever has seen a larger one, so that an instance that was stopped for longer than
	// LeaseTTL does no harm when it goes on.
	FenceKey = limiter.NewMetadataKey[int64]("LEASE_FENCE")
	// LostKey is on the leases of concurrency limiters: a channel that is closed when the
	// lease ends before it is released.
	LostKey = limiter.NewMetadataKey[<-chan struct{}]("LEASE_LOST")
)

// String says in one line what has happened.
func (e Event) String() string {
	var b strings.Builder
	b.WriteString(e.Kind.String())
	for _, a := range e.attrs() {
		fmt.Fprintf(&b, ", %s %v", a.Key, a.Value)
	}
	return b.String()
}

// LogValue implements [slog.LogValuer].
func (e Event) LogValue() slog.Value {
	return slog.GroupValue(append([]slog.Attr{slog.String("kind", e.Kind.String())}, e.attrs()...)...)
}

// attrs are the fields that are set.
func (e Event) attrs() (set []slog.Attr) {
	if e.Limiter != "" {
		set = append(set, slog.String("limiter", e.Limiter))
	}
	if e.Key != "" {
		set = append(set, slog.String("key", fmt.Sprintf("%q", e.Key)))
	}
	if e.Shard != "" {
		set = append(set, slog.String("part", e.Shard))
	}
	if e.Permits != 0 {
		set = append(set, slog.Int64("permits", e.Permits))
	}
	if e.Away != 0 {
		set = append(set, slog.Duration("away", e.Away))
	}
	if e.Err != nil {
		set = append(set, slog.Any("error", e.Err))
	}
	return set
}
