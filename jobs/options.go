package jobs

import (
	"cmp"
	"time"

	"github.com/weir-go/weir/internal/validate"
	"github.com/weir-go/weir/store/weirpostgres/pgmigrate"
)

// Options configure a [Throttler]. The zero value has the defaults.
type Options struct {
	// Schema is the schema in which [Migrate] made the tables. If empty, it is weir.
	Schema string
	// RiverSchema is River's schema, as in river.Config. If empty, River's tables are found by the search path.
	RiverSchema string
	// Config has limiters to set, and throttles for kinds of jobs. [Throttler.Apply] replaces the throttles.
	Config Config

	// Cancel cancels all throttled jobs, as [Throttle.Cancel] does those of one Throttle.
	Cancel bool
	// MinDelay is the shortest time for which a throttled job is snoozed, for jobs whose [Throttle] has none. If 0,
	// jobs come back as soon as they have a chance. River brings them back with the precision of its FetchPollInterval.
	MinDelay time.Duration

	// HandOver is the longest time that a job waits in its worker for its turn to hold a mutex or a semaphore. A job
	// that is expected to wait longer leaves its worker at once. If 0, it is 1s; -1 turns it off.
	//
	// River takes up to its FetchPollInterval to bring a job back. Without HandOver, slots that are held for less than that
	// would be idle most of the time, and a job that asks while a slot is free gets it before jobs that are snoozed.
	HandOver time.Duration
	// HandOverWorkers is how many jobs of this Throttler may wait in their workers at a time, at most 10,000. If 0, it
	// is 16.
	HandOverWorkers int

	// Lease is how long a slot stays taken after the process of its job has died, if its [Throttle] is not Strict.
	// Leases of running jobs are renewed. If a lease cannot be renewed in time, the context of the job ends with
	// [ErrLost]. If 0, it is 30s; it must be at least 1s.
	Lease time.Duration
	// CallTimeout bounds each transaction. If 0, it is 10s. Jobs without an answer by then are snoozed.
	CallTimeout time.Duration

	// OnEvent, if not nil, is called with events for operators, one at a time, on a goroutine of the Throttler.
	OnEvent func(Event)
}

const (
	defaultHandOver        = time.Second
	defaultHandOverWorkers = 16
	defaultLease           = 30 * time.Second
	defaultCallTimeout     = 10 * time.Second
	// A transaction grants at most maxBatch plus maxHandOverWorkers jobs, and takes 65536 fences, one for each.
	maxHandOverWorkers = 10_000
)

// withDefaults returns the options with defaults filled in, or what is wrong with them.
func (o Options) withDefaults() (Options, error) {
	var p validate.Problems
	for _, schema := range []struct{ field, name string }{{"Schema", o.Schema}, {"RiverSchema", o.RiverSchema}} {
		if _, err := migrations.SchemaName(schema.name); err != nil {
			p.Add(schema.field, short(schema.name), "must be letters, digits and _, not begin with a digit, and have at most 48 of them")
		}
	}
	o.Schema = cmp.Or(o.Schema, pgmigrate.DefaultSchema)
	if o.MinDelay < 0 || o.MinDelay > maxDelay {
		p.Add("MinDelay", o.MinDelay, "must be 0 to %v", maxDelay)
	}
	switch {
	case o.HandOver == 0:
		o.HandOver = defaultHandOver
	case o.HandOver == -1:
		o.HandOver = 0
	case o.HandOver < 0 || o.HandOver > time.Minute:
		p.Add("HandOver", o.HandOver, "must be -1, or 0 to 1m")
	}
	switch {
	case o.HandOverWorkers == 0:
		o.HandOverWorkers = defaultHandOverWorkers
	case o.HandOverWorkers < 0 || o.HandOverWorkers > maxHandOverWorkers:
		p.Add("HandOverWorkers", o.HandOverWorkers, "must be 0 to %d", maxHandOverWorkers)
	}
	o.Lease = duration(&p, "Lease", o.Lease, defaultLease, time.Second)
	o.CallTimeout = duration(&p, "CallTimeout", o.CallTimeout, defaultCallTimeout, time.Millisecond)
	return o, p.Err("jobs")
}

// duration returns d, or otherwise if d is 0. It adds a problem if d is neither 0 nor at least least.
func duration(p *validate.Problems, field string, d, otherwise, least time.Duration) time.Duration {
	switch {
	case d == 0:
		return otherwise
	case d < least || d > maxDelay:
		p.Add(field, d, "must be 0 or %v to %v", least, maxDelay)
	}
	return d
}
