package limiter

import (
	"time"

	"github.com/weir-go/weir/internal/textenum"
	"github.com/weir-go/weir/internal/validate"
)

// QueueOrder says which waiter is served first when permits come back. It is written "oldest_first" or "newest_first"
// in configuration files.
type QueueOrder uint8

// The orders of a queue.
const (
	// OldestFirst serves waiters in the order in which they came, and no caller overtakes them. A newcomer that finds
	// no room is rejected. It is the zero value.
	OldestFirst QueueOrder = iota
	// NewestFirst serves the newest waiter first: under overload, its caller is most likely still there. A newcomer
	// takes free permits before the queue, and if there is no room, it pushes out the oldest waiters.
	NewestFirst
)

var queueOrders = textenum.Texts[QueueOrder]{Package: "limiter", Type: "QueueOrder", Texts: []string{
	OldestFirst: "oldest_first", NewestFirst: "newest_first",
}}

// String returns the text form, or QueueOrder(n) for any other number.
func (o QueueOrder) String() string { return queueOrders.String(o) }

// MarshalText implements [encoding.TextMarshaler].
func (o QueueOrder) MarshalText() ([]byte, error) { return queueOrders.Marshal(o) }

// UnmarshalText implements [encoding.TextUnmarshaler].
func (o *QueueOrder) UnmarshalText(text []byte) error { return queueOrders.Unmarshal(o, text) }

// ConcurrencyOptions are the options of a [Concurrency] limiter. PermitLimit is required.
type ConcurrencyOptions struct {
	// PermitLimit is how many permits can be held at once; at least 1.
	PermitLimit int `json:"permit_limit" yaml:"permit_limit"`
	// QueueLimit is how many permits can be waited for. If 0, the limiter has no queue.
	QueueLimit int `json:"queue_limit,omitempty" yaml:"queue_limit,omitempty"`
	// QueueOrder says which waiter is served first. The default is OldestFirst.
	QueueOrder QueueOrder `json:"queue_order,omitempty" yaml:"queue_order,omitempty"`
}

// FixedWindowOptions are the options of a [FixedWindow]. PermitLimit and Window are required.
type FixedWindowOptions struct {
	// PermitLimit is how many permits a window has; at least 1.
	PermitLimit int `json:"permit_limit" yaml:"permit_limit"`
	// Window is how long a window is; more than 0.
	Window time.Duration `json:"window" yaml:"window"`
	// QueueLimit is how many permits can be waited for. If 0, the limiter has no queue.
	QueueLimit int `json:"queue_limit,omitempty" yaml:"queue_limit,omitempty"`
	// QueueOrder says which waiter is served first. The default is OldestFirst.
	QueueOrder QueueOrder `json:"queue_order,omitempty" yaml:"queue_order,omitempty"`
	// If ManualReplenishment is true, time passes only in TryReplenish. The default is false.
	ManualReplenishment bool `json:"manual_replenishment,omitempty" yaml:"manual_replenishment,omitempty"`
}

// SlidingWindowOptions are the options of a [SlidingWindow]. PermitLimit, Window and SegmentsPerWindow are required.
type SlidingWindowOptions struct {
	// PermitLimit is how many permits any window has; at least 1.
	PermitLimit int `json:"permit_limit" yaml:"permit_limit"`
	// Window is how long a window is; more than 0, and divisible by SegmentsPerWindow.
	Window time.Duration `json:"window" yaml:"window"`
	// SegmentsPerWindow is the number of steps in which the window slides; at least 1 and at most 1,048,576. With 1, the
	// limiter is a fixed window. Each segment in which permits were taken uses 16 bytes until it leaves the window.
	SegmentsPerWindow int `json:"segments_per_window" yaml:"segments_per_window"`
	// QueueLimit is how many permits can be waited for. If 0, the limiter has no queue.
	QueueLimit int `json:"queue_limit,omitempty" yaml:"queue_limit,omitempty"`
	// QueueOrder says which waiter is served first. The default is OldestFirst.
	QueueOrder QueueOrder `json:"queue_order,omitempty" yaml:"queue_order,omitempty"`
	// If ManualReplenishment is true, time passes only in TryReplenish. The default is false.
	ManualReplenishment bool `json:"manual_replenishment,omitempty" yaml:"manual_replenishment,omitempty"`
}

// TokenBucketOptions are the options of a [TokenBucket]. TokenLimit, TokensPerPeriod and ReplenishmentPeriod are
// required.
type TokenBucketOptions struct {
	// TokenLimit is how many tokens the bucket holds, and so the largest burst; at least 1.
	TokenLimit int `json:"token_limit" yaml:"token_limit"`
	// TokensPerPeriod is how many tokens come in each period; at least 1. Tokens above TokenLimit are lost.
	TokensPerPeriod int `json:"tokens_per_period" yaml:"tokens_per_period"`
	// ReplenishmentPeriod is how long a period is; more than 0.
	ReplenishmentPeriod time.Duration `json:"replenishment_period" yaml:"replenishment_period"`
	// QueueLimit is how many tokens can be waited for. If 0, the limiter has no queue.
	QueueLimit int `json:"queue_limit,omitempty" yaml:"queue_limit,omitempty"`
	// QueueOrder says which waiter is served first. The default is OldestFirst.
	QueueOrder QueueOrder `json:"queue_order,omitempty" yaml:"queue_order,omitempty"`
	// If ManualReplenishment is true, time passes only in TryReplenish. The default is false.
	ManualReplenishment bool `json:"manual_replenishment,omitempty" yaml:"manual_replenishment,omitempty"`
}

// PartitionedOptions are the options of a [PartitionedLimiter]. The zero value has the defaults: any number of
// partitions, each kept until it has been idle for 10 seconds.
type PartitionedOptions struct {
	// IdleTimeout is how long a partition is kept after its limiter has become idle; see [Idler]. Then the limiter is
	// closed and the partition is forgotten. If 0, it is 10 seconds. It cannot be turned off; set a long time to keep
	// idle partitions.
	IdleTimeout time.Duration `json:"idle_timeout,omitempty" yaml:"idle_timeout,omitempty" reload:"default=10s"`
	// MaxPartitions bounds the number of partitions. If 0, there is no bound. Set it if keys come from outside the
	// program, such as from requests.
	//
	// A new key beyond the bound takes the place of the least recently used partition that is idle. If all are in use,
	// the new key is rejected, so a flood of keys never evicts a key that is being limited. With more than 64
	// partitions, the new key examines a sample of 8 partitions, so that its cost does not grow with their number.
	// During a flood, a new key can then be rejected although a partition is idle.
	MaxPartitions int `json:"max_partitions,omitempty" yaml:"max_partitions,omitempty"`
	// ExpectedPartitions is how many partitions there are at the same time, more or less. It bounds nothing. If 0, memory
	// is set aside for locks that many processors do not wait for: 8 KiB, and with more than two processors up to 64 KiB.
	// Set it in a program with thousands of PartitionedLimiters that have few partitions each. Reconfigure ignores it.
	ExpectedPartitions int `json:"-" yaml:"-"`
}

const defaultIdleTimeout = 10 * time.Second

// Validate returns a [weir.OptionsError] with everything that is wrong with o, or nil. Constructors and Reconfigure
// call it; a program that reads options from a file can call it earlier.
func (o ConcurrencyOptions) Validate() error {
	var p validate.Problems
	p.AtLeast("PermitLimit", o.PermitLimit, 1)
	validateQueue(&p, o.QueueLimit, o.QueueOrder)
	return p.Err("limiter")
}

// Validate returns a [weir.OptionsError] with everything that is wrong with o, or nil. Constructors and Reconfigure
// call it; a program that reads options from a file can call it earlier.
func (o FixedWindowOptions) Validate() error {
	var p validate.Problems
	p.AtLeast("PermitLimit", o.PermitLimit, 1)
	p.Positive("Window", o.Window)
	validateQueue(&p, o.QueueLimit, o.QueueOrder)
	return p.Err("limiter")
}

// maxSegments bounds the memory of a sliding window to 16 MiB.
const maxSegments = 1 << 20

// Validate returns a [weir.OptionsError] with everything that is wrong with o, or nil. Constructors and Reconfigure
// call it; a program that reads options from a file can call it earlier.
func (o SlidingWindowOptions) Validate() error {
	var p validate.Problems
	p.AtLeast("PermitLimit", o.PermitLimit, 1)
	p.Positive("Window", o.Window)
	p.AtLeast("SegmentsPerWindow", o.SegmentsPerWindow, 1)
	switch {
	case o.SegmentsPerWindow > maxSegments:
		p.Add("SegmentsPerWindow", o.SegmentsPerWindow, "must be at most %d", maxSegments)
	case o.Window > 0 && o.SegmentsPerWindow > 0 && o.Window%time.Duration(o.SegmentsPerWindow) != 0:
		p.Add("Window", o.Window, "must be divisible by {SegmentsPerWindow}, which is %d", o.SegmentsPerWindow)
	}
	validateQueue(&p, o.QueueLimit, o.QueueOrder)
	return p.Err("limiter")
}

// Validate returns a [weir.OptionsError] with everything that is wrong with o, or nil. Constructors and Reconfigure
// call it; a program that reads options from a file can call it earlier.
func (o TokenBucketOptions) Validate() error {
	var p validate.Problems
	p.AtLeast("TokenLimit", o.TokenLimit, 1)
	p.AtLeast("TokensPerPeriod", o.TokensPerPeriod, 1)
	p.Positive("ReplenishmentPeriod", o.ReplenishmentPeriod)
	validateQueue(&p, o.QueueLimit, o.QueueOrder)
	return p.Err("limiter")
}

// Validate returns a [weir.OptionsError] with everything that is wrong with o, or nil.
func (o PartitionedOptions) Validate() error {
	var p validate.Problems
	o.validate(&p)
	return p.Err("limiter")
}

// validate adds what is wrong with o to p.
func (o PartitionedOptions) validate(p *validate.Problems) {
	p.NotNegative("IdleTimeout", o.IdleTimeout)
	p.AtLeast("MaxPartitions", o.MaxPartitions, 0)
	p.AtLeast("ExpectedPartitions", o.ExpectedPartitions, 0)
}

// validateQueue adds what is wrong with the options of a queue to p.
func validateQueue(p *validate.Problems, limit int, order QueueOrder) {
	p.AtLeast("QueueLimit", limit, 0)
	if !queueOrders.Has(order) {
		p.Add("QueueOrder", order, "must be OldestFirst or NewestFirst")
	}
}
