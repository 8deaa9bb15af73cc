package store

import (
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/weir-go/weir/internal/textenum"
)

// An EventKind is what an [Event] reports.
type EventKind uint8

// The kinds of events. The zero EventKind is not used.
const (
	// EventStoreLost: Options.FailureThreshold calls in a row have failed, and the store, or the shard in Shard, counts as away.
	// Err is the last failure. Until EventStoreRecovered, limiters answer by their [OutagePolicy] for the keys in it.
	EventStoreLost EventKind = iota + 1
	// EventStoreRecovered: a probe has succeeded, and the store, or the shard in Shard, is used again. A shard that has
	// no keys any more has recovered, too: its keys are in other shards now.
	EventStoreRecovered
	// EventRefundLost: permits could not be refunded after a chain was rejected or a caller's context had ended. They
	// are missing until time restores them.
	EventRefundLost
	// EventLeaseLost: a lease of a concurrency limiter has ended before its holder released it, because it could not be
	// renewed in time. Its permits can be in use elsewhere.
	EventLeaseLost
	// EventListenFailed: the store sends no notices, and limiters poll instead. If Err is not [errors.ErrUnsupported],
	// listening is tried again.
	EventListenFailed
	// EventReconfigured: the limiter has new limits, set by this instance or another one, or an override of its limits has
	// begun or ended.
	EventReconfigured
	// EventOverruled: the limits that this limiter was made with are not in force, because newer limits are; see
	// LimiterOptions.Generation. The same event reports that the store has a limiter of another kind under this name;
	// then this limiter answers by its [OutagePolicy] until one of the kinds is changed. Err says which it is.
	EventOverruled
)

var eventNames = textenum.Texts[EventKind]{Package: "store", Type: "EventKind", Texts: []string{
	"no event", "store lost", "store recovered", "refund lost", "lease lost", "listen failed", "reconfigured", "overruled",
}}

// String returns the kind in words, or EventKind(n) if k is unknown.
func (k EventKind) String() string { return eventNames.String(k) }

// MarshalText implements [encoding.TextMarshaler].
func (k EventKind) MarshalText() ([]byte, error) { return eventNames.Marshal(k) }

// An Event is what [Options.OnEvent] is called with.
type Event struct {
	Kind    EventKind
	Limiter string        // its name; "" for events of the whole store
	Shard   string        // EventStoreLost, EventStoreRecovered: see [backend.Sharded]; "" is the whole store
	Key     string        // the partition; the SHA-256 of a key of more than 200 bytes
	Permits int64         // EventRefundLost, EventLeaseLost
	Away    time.Duration // EventStoreRecovered: how long the store was away
	Err     error
}

// String returns the event in one line.
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

// attrs returns the fields that are set.
func (e Event) attrs() (attrs []slog.Attr) {
	add := func(set bool, a slog.Attr) {
		if set {
			attrs = append(attrs, a)
		}
	}
	add(e.Limiter != "", slog.String("limiter", e.Limiter))
	add(e.Key != "", slog.String("key", fmt.Sprintf("%q", e.Key)))
	add(e.Shard != "", slog.String("shard", e.Shard))
	add(e.Permits != 0, slog.Int64("permits", e.Permits))
	add(e.Away != 0, slog.Duration("away", e.Away))
	add(e.Err != nil, slog.Any("error", e.Err))
	return attrs
}
