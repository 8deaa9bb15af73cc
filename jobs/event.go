package jobs

import (
	"time"

	"github.com/weir-go/weir/internal/textenum"
)

// An EventKind says what an [Event] reports. The zero value is not a kind.
type EventKind uint8

// The kinds of events.
const (
	// EventJobFailed: a job could not be throttled as it is declared and failed: Err says why. If this program cannot read what a
	// newer one has written, the job is snoozed instead.
	EventJobFailed EventKind = iota + 1
	// EventSlotLost: a running job no longer holds what it was granted; see [ErrLost].
	EventSlotLost
	// EventDatabaseLost: a transaction has failed with Err. Until EventDatabaseRecovered, throttled jobs are snoozed.
	EventDatabaseLost
	// EventDatabaseRecovered: a transaction has succeeded again.
	EventDatabaseRecovered
	// EventNewerSchema: [New] has found tables that a newer program has migrated. This program works with them, but
	// update it soon.
	EventNewerSchema
)

var eventNames = textenum.Texts[EventKind]{Package: "jobs", Type: "EventKind", Texts: []string{
	EventJobFailed: "job failed", EventSlotLost: "slot lost",
	EventDatabaseLost: "database lost", EventDatabaseRecovered: "database recovered",
	0: "no event", EventNewerSchema: "newer schema",
}}

// String returns the kind in words, or EventKind(n) if n is not a kind.
func (k EventKind) String() string { return eventNames.String(k) }

// MarshalText implements [encoding.TextMarshaler].
func (k EventKind) MarshalText() ([]byte, error) { return eventNames.Marshal(k) }

// An Event is handed to [Options.OnEvent].
type Event struct {
	Kind    EventKind
	Job     int64  // the ID of the job; 0 if the event is about the database
	JobKind string // the kind of the job
	Err     error  // why a job failed, or a transaction
}

// A Decision is what a Throttler has decided for a run of a job that has limits.
type Decision struct {
	Job     int64 // the ID of the job
	JobKind string
	Granted []Ref         // the limits of a job that starts, with their keys; nil if the job was throttled
	Waited  time.Duration // if the job starts, the time since it was first throttled; 0 if it was not
	Limiter Ref           // the limiter that makes the job wait longest or, if it starts, for which it has waited longest
	Next    time.Time     // when a throttled job comes back or, if it is cancelled, could have run
	// Cancelled reports whether the throttled job was cancelled, and does not come back.
	Cancelled bool
}
