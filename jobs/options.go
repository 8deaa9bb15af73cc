package jobs

import (
	"regexp"
	"time"

	"go.opentelemetry.io/otel/metric"
)

// Options configure a [Throttler]. The zero Options are the defaults.
type Options struct {
	// Schema is where [Migrate] made the tables. If it is empty, it is weir.
	Schema string
	// RiverSchema is River's schema, as in river.Config. If it is empty, River's tables are found by the search path.
	RiverSchema string
	// Config has limiters to set and throttles of kinds. It can be replaced by [Throttler.Apply].
	Config Config

	// Action is what happens to throttled jobs whose [Throttle] does not say it. If it is 0, it is Snooze.
	Action Action
	// MinDelay is the least time for which a throttled job is snoozed, for jobs whose [Throttle] does not say it. If it is
	// 0, jobs come back as soon as they have a chance. River brings them back with the precision of its FetchPollInterval.
	MinDelay time.Duration

	// HandOver is how long a job may wait in its worker when its turn to hold a mutex or a semaphore is as near as that.
	// River takes up to its FetchPollInterval to bring a job back, and slots that are held for less than that would lie
	// idle. Whoever has to wait longer leaves its worker at once. If it is 0, it is 1s; -1 turns it off.
	HandOver time.Duration
	// HandOverWorkers is how many jobs of this Throttler may wait in their workers at a time, at most 10,000. If it is 0, it
	// is 16.
	HandOverWorkers int

	// Lease is for how long a slot stays taken after its process has died, in relaxed mode. It is renewed all the time. A
	// job whose lease cannot be renewed in time is told by its context, see [ErrLost]. If it is 0, it is 30s; it must be at
	// least 1s.
	Lease time.Duration
	// CallTimeout bounds each transaction. If it is 0, it is 10s. Jobs that could not ask within it are snoozed.
	CallTimeout time.Duration

	// MeterProvider makes the instruments for metrics. If it is nil, it is the global one of OpenTelemetry.
	MeterProvider metric.MeterProvider
	// OnEvent, if not nil, is called with what an operator should know, one event after the other, on a goroutine of the
	// Throttler.
	OnEvent func(Event)
}

const (
	defaultHandOver        = time.Second
	defaultHandOverWorkers = 16
	defaultLease           = 30 * time.Second
	defaultCallTimeout     = 10 * time.Second
	// With maxBatch this is how many jobs a transaction can grant. Each has a fence of the 65536 that it takes.
	maxHandOverWorkers = 10_000
)

// River has no rule for it but that the name of a channel with it fits into PostgreSQL's 63 bytes.
var validRiverSchema = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,47}$`)

// withDefaults returns the options with defaults filled in, or what is wrong with them.
func (o Options) withDefaults() (Options, error) {
	var p problems
	if _, err := migrations.SchemaName(o.Schema); err != nil {
		p.add("Schema is %q, must be letters, digits and _, not begin with a digit, and have at most 48 of them", o.Schema)
	}
	if o.RiverSchema != "" && !validRiverSchema.MatchString(o.RiverSchema) {
		p.add("RiverSchema is %q, must be letters, digits and _, not begin with a digit, and have at most 48 of them", o.RiverSchema)
	}
	if int(o.Action) >= len(actionNames) {
		p.add("Action is %v, must be Snooze or Cancel", o.Action)
	}
	if o.Action == 0 {
		o.Action = Snooze
	}
	if o.MinDelay < 0 || o.MinDelay > maxDelay {
		p.add("MinDelay is %v, must be 0 to %v", o.MinDelay, maxDelay)
	}
	switch {
	case o.HandOver == 0:
		o.HandOver = defaultHandOver
	case o.HandOver == -1:
		o.HandOver = 0
	case o.HandOver < 0 || o.HandOver > time.Minute:
		p.add("HandOver is %v, must be -1 or 0 to 1m", o.HandOver)
	}
	switch {
	case o.HandOverWorkers == 0:
		o.HandOverWorkers = defaultHandOverWorkers
	case o.HandOverWorkers < 0 || o.HandOverWorkers > maxHandOverWorkers:
		p.add("HandOverWorkers is %d, must be 0 to %d", o.HandOverWorkers, maxHandOverWorkers)
	}
	o.Lease = p.duration("Lease", o.Lease, defaultLease, time.Second)
	o.CallTimeout = p.duration("CallTimeout", o.CallTimeout, defaultCallTimeout, time.Millisecond)
	return o, p.err()
}

func (p *problems) duration(field string, d, otherwise, least time.Duration) time.Duration {
	switch {
	case d == 0:
		return otherwise
	case d < least || d > maxDelay:
		p.add("%s is %v, must be 0 or %v to %v", field, d, least, maxDelay)
	}
	return d
}
