// Package estimate learns what calls cost, for limits whose cost is known only afterwards: tokens of a model, rows of a query.
//
//	costs := weir.Must(estimate.New(&estimate.Options{Initial: 1000}))
//	…
//	call, err := costs.Reserve(ctx, tokens, "summary/large-model")
//	if err != nil || !call.Lease.Acquired() {
//		return …
//	}
//	answer, used, err := callModel(ctx, prompt)
//	if err == nil {
//		call.Commit(used)
//	}
//
// A reservation takes what most calls of that key have cost. Commit takes what is missing, or gives back what was too much. A call
// that dies without telling its cost has cost what was reserved.
package estimate

import (
	"cmp"
	"context"
	"errors"
	"math"
	"math/bits"
	"sync"
	"time"

	"github.com/weir-go/weir/internal/clock"
	"github.com/weir-go/weir/internal/validate"
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/rate"
)

// Options are the options of an [Estimator]. The zero value has the defaults.
type Options struct {
	// Quantile is the share of the calls whose cost is at most the estimate: above 0 and below 1. The default is 0.9. The lower it
	// is, the more calls take more than they have reserved, and the limiter owes permits; the higher it is, the more permits are
	// reserved for nothing until calls end.
	Quantile float64 `json:"quantile,omitempty" yaml:"quantile,omitempty"`
	// Initial is the estimate before a call has ended; at least 1. The default is 1. It counts as much as eight calls.
	Initial int `json:"initial,omitempty" yaml:"initial,omitempty"`
	// HalfLife is the time after which a call counts for half as much as a new one. The default is 10 minutes.
	HalfLife time.Duration `json:"half_life,omitempty" yaml:"half_life,omitempty"`
	// MaxKeys bounds the memory, which is 1 KiB a key. The default is 1000. Beyond it, a new key takes the place of another one,
	// which then has the estimate of all keys.
	MaxKeys int `json:"max_keys,omitempty" yaml:"max_keys,omitempty"`
}

// Validate returns a [weir.OptionsError] with everything that is wrong with o, or nil. A nil o stands for the defaults.
func (o *Options) Validate() error {
	var p validate.Problems
	if o != nil {
		if !(o.Quantile >= 0 && o.Quantile < 1) {
			p.Add("Quantile", o.Quantile, "must be above 0 and below 1, or 0 for the default")
		}
		p.AtLeast("Initial", o.Initial, 0)
		p.NotNegative("HalfLife", o.HalfLife)
		p.AtLeast("MaxKeys", o.MaxKeys, 0)
	}
	return p.Err("estimate")
}

// An Estimator knows what calls have cost, by key. It is safe for concurrent use. Make one with [New].
type Estimator struct {
	options Options

	mu   sync.Mutex
	all  costs
	keys map[string]*costs
}

// New returns an estimator. If o is nil, the defaults apply. The error is a [weir.OptionsError].
func New(o *Options) (*Estimator, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	e := &Estimator{options: *cmp.Or(o, new(Options)), keys: map[string]*costs{}}
	e.options.Quantile = cmp.Or(e.options.Quantile, 0.9)
	e.options.Initial = cmp.Or(e.options.Initial, 1)
	e.options.HalfLife = cmp.Or(e.options.HalfLife, 10*time.Minute)
	e.options.MaxKeys = cmp.Or(e.options.MaxKeys, 1000)
	e.all.begin(clock.Now(), e.options.Initial)
	return e, nil
}

// Estimate returns what the next call of key is expected to cost at most, by [Options.Quantile]; at least 1.
func (e *Estimator) Estimate(key string) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	c := e.keys[key]
	if c == nil {
		c = &e.all
	}
	return c.quantile(e.options.Quantile)
}

// Observe notes what a call of key has cost. A cost below 0 counts as 0.
func (e *Estimator) Observe(key string, cost int) {
	now := clock.Now()
	e.mu.Lock()
	defer e.mu.Unlock()
	c := e.keys[key]
	if c == nil {
		if len(e.keys) >= e.options.MaxKeys {
			for other := range e.keys {
				delete(e.keys, other)
				break
			}
		}
		c = new(costs)
		c.begin(now, e.all.quantile(e.options.Quantile))
		e.keys[key] = c
	}
	c.add(now, e.options.HalfLife, cost)
	e.all.add(now, e.options.HalfLife, cost)
}

// Reserve takes the estimate for a call of key from l, and waits for it if l has a queue with room. If l can never grant as much at once,
// Reserve takes what it can, or at least half of that. Lease.Acquired reports whether it was granted. The error is that of l.
func (e *Estimator) Reserve(ctx context.Context, l limiter.Limiter, key string) (*Reservation, error) {
	n := e.Estimate(key)
	if c, ok := l.(rate.Limited); ok {
		n = min(n, max(c.Limits().Permits, 1))
	}
	lease, err := l.Acquire(ctx, n)
	for errors.Is(err, limiter.ErrPermitCount) && n > 1 {
		n = (n + 1) / 2
		lease, err = l.Acquire(ctx, n)
	}
	if err != nil {
		return nil, err
	}
	return &Reservation{Lease: lease, estimator: e, key: key}, nil
}

// A Reservation is what [Estimator.Reserve] has taken for a call.
type Reservation struct {
	// Lease is the answer of the limiter. Release or Refund it as any other lease; a limiter that spends its permits needs neither.
	Lease limiter.Lease

	estimator *Estimator
	key       string
}

// Commit says what the call has cost. Call it once. It reports whether the limiter has taken the difference, as those of package
// limiter do; see [limiter.Lease.Adjust].
func (r *Reservation) Commit(cost int) (adjusted bool) {
	r.estimator.Observe(r.key, cost)
	r.Lease, adjusted = r.Lease.Adjust(cost)
	return adjusted
}

// costs is a histogram in which old calls count less: instead of making old counts smaller, new ones are larger. Eight bins cover
// each power of two, so that a quantile is at most an eighth too high.
type costs struct {
	counts [8 * 32]float32
	sum    float32
	epoch  time.Duration // by clock.Now: when a call counted 1
}

// prior is how many calls the estimate counts with which a histogram begins.
const prior = 8

func (c *costs) begin(now time.Duration, estimate int) {
	c.epoch = now
	c.counts[binOf(estimate)], c.sum = prior, prior
}

func (c *costs) add(now, halfLife time.Duration, cost int) {
	age := float64(now-c.epoch) / float64(halfLife)
	if age > 20 { // beyond 2²⁴, small counts would be lost
		shrink := float32(math.Exp2(-age))
		c.sum = 0
		for i := range c.counts {
			c.counts[i] *= shrink
			c.sum += c.counts[i]
		}
		c.epoch, age = now, 0
	}
	weight := float32(math.Exp2(max(age, 0)))
	c.counts[binOf(cost)] += weight
	c.sum += weight
}

// quantile returns the upper end of the bin of the quantile.
func (c *costs) quantile(q float64) int {
	left := float32(q) * c.sum
	last := 0
	for i, n := range c.counts {
		if n > 0 {
			last = i
		}
		if left -= n; left <= 0 && n > 0 {
			break
		}
	}
	return max(topOf(last), 1)
}

// binOf returns the bin of a cost: costs below 16 have a bin each.
func binOf(cost int) int {
	n := uint64(min(max(cost, 0), math.MaxInt32))
	if n < 16 {
		return int(n)
	}
	shift := bits.Len64(n) - 4
	return shift*8 + int(n>>shift)
}

// topOf returns the highest cost of a bin.
func topOf(bin int) int {
	if bin < 16 {
		return bin
	}
	shift := bin/8 - 1
	return (bin-shift*8+1)<<shift - 1
}
