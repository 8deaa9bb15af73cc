package dashboard

import (
	"context"
	"time"
)

// Jobs is what the dashboard shows of throttled jobs, and what it can release. jobsdashboard.New makes one of the Throttler
// of package jobs. Its methods must be safe for concurrent use. The contexts of the calls end after 5 s, or in an action
// after 30 s.
type Jobs interface {
	// Limiters returns all limiters of throttled jobs.
	Limiters(ctx context.Context) ([]JobLimiter, error)
	// Keys returns at most n keys of a limiter, in order, beginning after the key after.
	Keys(ctx context.Context, limiter JobRef, after string, n int) ([]string, error)
	// Inspect returns the state of a limiter or, if limiter has a Key, of that key.
	Inspect(ctx context.Context, limiter JobRef) (JobState, error)
	// Release frees the slot that the holder has. It reports whether the holder had one.
	Release(ctx context.Context, limiter JobRef, holder JobHolder) (released bool, err error)
}

// A JobRef names a limiter of throttled jobs, or one of its keys.
type JobRef struct {
	Type string `json:"type"`          // such as "semaphore"
	Name string `json:"name"`          // the limiter's name
	Key  string `json:"key,omitempty"` // empty: the limiter as a whole, or it has no keys
}

// A JobLimiter is a limiter of throttled jobs in the list of all.
type JobLimiter struct {
	JobRef
	Options string `json:"options,omitempty"` // its limits in a form for people, such as "max_count 3"
	Keys    int    `json:"keys"`              // how many keys are stored
	Holders int    `json:"holders"`           // how many slots are held, of all keys
	Waiters int    `json:"waiters"`           // how many throttled jobs come back, of all keys
}

// A JobState is the state of a limiter of throttled jobs, or of one of its keys.
type JobState struct {
	JobRef
	Limit    int         `json:"limit"`         // the number of slots; 0: not known
	Used     int         `json:"used"`          // how many slots are taken
	Reserved int         `json:"reserved"`      // how many places are reserved for jobs that come back
	Waiting  int         `json:"waiting"`       // how many throttled jobs come back
	Next     time.Time   `json:"next,omitzero"` // an estimate of when a job that comes now would start; zero: not known
	Holders  []JobHolder `json:"holders"`       // which jobs have slots; it need not have all of them
	Waiters  []JobWaiter `json:"waiters"`       // which jobs come back; it need not have all of them
}

// A JobHolder holds a slot.
type JobHolder struct {
	Job   int64     `json:"job"`             // the number of the job
	Owner string    `json:"owner,omitempty"` // the name of the owner; empty if it is the job
	Since time.Time `json:"since,omitzero"`
	Until time.Time `json:"until,omitzero"` // when the slot is freed by itself; zero: it is not
}

// A JobWaiter is a throttled job that comes back.
type JobWaiter struct {
	Job   int64     `json:"job"`
	Since time.Time `json:"since,omitzero"` // when it was first throttled
	Wake  time.Time `json:"wake,omitzero"`  // when it comes back
}
