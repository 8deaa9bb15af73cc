package jobs

import (
	"fmt"
	"time"
)

// An EventKind is what an [Event] reports.
type EventKind uint8

// The kinds of events. There is no zero EventKind.
const (
	// JobThrottled: a job was sent away and comes back at Next.
	JobThrottled EventKind = iota + 1
	// JobCancelled: a job was throttled, and cancelled because of that.
	JobCancelled
	// JobFailed: a job could not be throttled as it is declared and failed: Err says why.
	JobFailed
	// SlotLost: a job is running and does not hold any more what it was granted; see [ErrLost].
	SlotLost
	// DatabaseLost: a transaction has failed with Err. Until DatabaseRecovered, throttled jobs are snoozed.
	DatabaseLost
	// DatabaseRecovered: a transaction has succeeded again.
	DatabaseRecovered
)

var eventNames = [...]string{"no event", "job throttled", "job cancelled", "job failed", "slot lost", "database lost", "database recovered"}

// String returns the kind in words.
func (k EventKind) String() string {
	if int(k) < len(eventNames) {
		return eventNames[k]
	}
	return fmt.Sprintf("EventKind(%d)", uint8(k))
}

// An Event is handed to [Options.OnEvent].
type Event struct {
	Kind    EventKind
	Job     int64     // its ID; 0: it is about the database
	JobKind string    // the kind of the job
	Limiter Ref       // JobThrottled, JobCancelled: the limiter that makes the job wait longest
	Next    time.Time // JobThrottled: when the job comes back. JobCancelled: when it could have run
	Err     error
}
