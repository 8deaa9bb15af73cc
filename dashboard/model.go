package dashboard

import (
	"strings"
	"time"

	"github.com/weir-go/weir/pipeline"
)

// about says of what and when a snapshot is.
type about struct {
	Time       time.Time `json:"time"`
	Instance   string    `json:"instance"` // what it shows: one process
	Started    time.Time `json:"started"`  // when the dashboard was made
	ReadOnly   bool      `json:"read_only"`
	HashedKeys bool      `json:"hashed_keys"` // keys are shown as hashes
}

// A snapshot is everything that the pages show at one moment. Its JSON is the API: docs/dashboard.md describes it. A list
// that is not part of a page is nil and left out.
type snapshot struct {
	about

	Summary   *summary        `json:"summary,omitzero"`
	Trouble   []trouble       `json:"trouble,omitzero"`
	Files     []fileState     `json:"files,omitzero"`
	Pipelines []pipelineState `json:"pipelines,omitzero"`
	Limiters  []limiterState  `json:"limiters,omitzero"`
	Circuits  []circuitState  `json:"circuits,omitzero"`
	Keys      []limiterKeys   `json:"keys,omitzero"`
	Events    []eventState    `json:"events,omitzero"`
	Stores    []storeState    `json:"stores,omitzero"`
	Jobs      []jobState      `json:"jobs,omitzero"`
	JobsError string          `json:"jobs_error,omitzero"`
}

// A summary has the figures at the top of the first page.
type summary struct {
	Pipelines int `json:"pipelines"`
	Running   int `json:"running"` // executions
	Limiters  int `json:"limiters"`
	Rejecting int `json:"rejecting"` // limiters that are known to reject
	Overrides int `json:"overrides"`
	Circuits  int `json:"circuits"`
	Open      int `json:"open"` // circuits that are not closed
	Stores    int `json:"stores"`
	Away      int `json:"away"` // stores

	// The rates of all limiters together are nil if one of the limiters does not know its own.
	Granted  *float64 `json:"granted_per_second,omitempty"`
	Rejected *float64 `json:"rejected_per_second,omitempty"`
}

// A level says how bad something is.
type level uint8

const (
	levelNone level = iota
	levelNotice
	levelWarning
	levelError
	levelCritical
)

var levelTexts = [...]string{"ok", "notice", "warning", "error", "critical"}

func (l level) String() string               { return levelTexts[l] }
func (l level) MarshalText() ([]byte, error) { return []byte(l.String()), nil }

// A trouble is one thing that an operator should look at.
type trouble struct {
	Level level     `json:"level"`
	What  string    `json:"what"` // such as "limiter"
	Name  string    `json:"name"`
	Text  string    `json:"text"`
	Since time.Time `json:"since,omitzero"`
}

// Page returns where there is more.
func (t trouble) Page() string { return strings.TrimSuffix(t.What, "s") + "s" }

// A fileState is a configuration file.
type fileState struct {
	Path        string    `json:"path"`
	Error       string    `json:"error,omitempty"` // why it is not in force
	LastAttempt time.Time `json:"last_attempt,omitzero"`
	LastLoad    time.Time `json:"last_load,omitzero"`
	Pipelines   []string  `json:"pipelines"`
}

// A pipelineState is an instance of a pipeline.
type pipelineState struct {
	Name       string          `json:"name"` // with the instance, as in orders/eu
	Pipeline   string          `json:"pipeline"`
	Instance   string          `json:"instance,omitempty"`
	Level      level           `json:"level"`
	Version    int             `json:"version"`
	Built      time.Time       `json:"built,omitzero"`
	Running    int             `json:"running"`
	Draining   int             `json:"draining"`
	LastReload time.Time       `json:"last_reload,omitzero"`
	Error      string          `json:"error,omitempty"` // why the last reload failed
	Strategies []strategyState `json:"strategies"`
	Note       string          `json:"note,omitempty"` // what is missing here, and why
	Events     []pipelineEvent `json:"events"`         // what is out of the ordinary
}

// A strategyState is one strategy of a pipeline.
type strategyState struct {
	Name    string `json:"name"`
	Kind    string `json:"kind"`
	Options fields `json:"options"`
	State   string `json:"state,omitempty"`
	Embeds  string `json:"embeds,omitempty"` // the pipeline that it embeds
}

// A pipelineEvent says how often something has happened in a pipeline.
type pipelineEvent struct {
	Name     string            `json:"name"`
	Strategy string            `json:"strategy,omitempty"`
	Severity pipeline.Severity `json:"severity"`
	Total    int64             `json:"total"`
	Rate     float64           `json:"per_second"`
	Text     string            `json:"text,omitempty"` // the last error
	since    time.Time
}

// limiterFigures are what a limiter has counted. A nil figure is not known.
type limiterFigures struct {
	Limit      int64  `json:"limit,omitempty"`      // the most permits that can be available
	Available  *int64 `json:"available,omitempty"`  // nil also if there is one for each key
	LastKnown  bool   `json:"last_known,omitempty"` // Available is of before, because the store has not answered
	Queued     *int64 `json:"queued,omitempty"`
	Granted    *int64 `json:"granted,omitempty"` // since the limiter was made, by this process
	Rejected   *int64 `json:"rejected,omitempty"`
	Partitions *int   `json:"partitions,omitempty"` // keys that are in memory

	GrantedRate  *float64 `json:"granted_per_second,omitempty"`
	RejectedRate *float64 `json:"rejected_per_second,omitempty"`
}

// A limiterState is a limiter of the registry.
type limiterState struct {
	Name      string   `json:"name"`
	Kind      string   `json:"kind"`
	Level     level    `json:"level"`
	Place     string   `json:"place"`  // process or store
	Limits    string   `json:"limits"` // in words, such as "bursts of 50, then 20 a second"
	Options   fields   `json:"options"`
	Pipelines []string `json:"pipelines"`
	// Override has what differs from the configuration, and Configured what the configuration says then.
	Override   *overrideState `json:"override,omitempty"`
	Configured fields         `json:"configured,omitempty"`

	limiterFigures
	// Shadow is true if all that is rejected goes on, because what asks the limiter is in shadow mode.
	Shadow  bool      `json:"shadow,omitempty"`
	Since   time.Time `json:"rejecting_since,omitzero"`
	History []column  `json:"history"`        // the last five minutes, the newest last
	Note    string    `json:"note,omitempty"` // what is missing here, and why
}

// A column is one part of the history of a limiter. A count that is not known is nil: it was not looked at in that time,
// or the limiter does not count it.
type column struct {
	Granted  *int64 `json:"granted,omitempty"`
	Rejected *int64 `json:"rejected,omitempty"`
}

// An overrideState says who has changed a limiter for a while.
type overrideState struct {
	By     string    `json:"by"`
	Reason string    `json:"reason"`
	Since  time.Time `json:"since"`
	Until  time.Time `json:"until"`
}

// A circuitState is the circuit of a circuit breaker.
type circuitState struct {
	Source     string        `json:"source"` // such as orders/CircuitBreaker
	Level      level         `json:"level"`
	State      string        `json:"state"`
	Since      time.Time     `json:"since,omitzero"`
	RetryAfter time.Duration `json:"retry_after,omitempty"` // of an open circuit
	Figures    string        `json:"figures"`
	Cause      string        `json:"cause,omitempty"`       // the error that has opened it
	IsolatedBy string        `json:"isolated_by,omitempty"` // if a user of the dashboard has isolated it
}

// limiterKeys are the keys of a partitioned limiter that are rejected most.
type limiterKeys struct {
	Limiter string     `json:"limiter"`
	Keys    []keyState `json:"keys"`
	Note    string     `json:"note,omitempty"`
}

// A keyState says how often a key was rejected. The true count is between Rejected - Error and Rejected.
type keyState struct {
	Key      string `json:"key"`
	Rejected int64  `json:"rejected"`
	Error    int64  `json:"error,omitempty"`
}

// An eventState is an event, or several of the same kind.
type eventState struct {
	Time      time.Time         `json:"time"`           // of the last one
	First     time.Time         `json:"first,omitzero"` // of the first one, if there are several
	Count     int64             `json:"count"`
	Name      string            `json:"name"`
	Severity  pipeline.Severity `json:"severity"`
	Source    string            `json:"source,omitempty"`
	Operation string            `json:"operation,omitempty"`
	Text      string            `json:"text,omitempty"`
	User      string            `json:"user,omitempty"` // who did it
	Key       string            `json:"key,omitempty"`
}

// A storeState is a store of limiters.
type storeState struct {
	Name      string       `json:"name"`
	Available bool         `json:"available"`
	Error     string       `json:"error,omitempty"`
	Since     time.Time    `json:"since,omitzero"`
	Listening bool         `json:"listening"`
	Shards    []shardState `json:"shards,omitempty"`
	Calls     int64        `json:"calls"`
	Failures  int64        `json:"failures"`
	Outages   int64        `json:"outages"`                    // answers while it was away
	CallRate  *float64     `json:"calls_per_second,omitempty"` // nil: not known yet
}

func (s storeState) level() level {
	if s.Available {
		return levelNone
	}
	return levelCritical
}

// A shardState is one shard of a store.
type shardState struct {
	Name  string    `json:"name"`
	Error string    `json:"error,omitempty"`
	Since time.Time `json:"since,omitzero"`
}

// A jobState is a limiter of throttled jobs.
type jobState struct {
	JobLimiter
	Level level `json:"level"`
}
