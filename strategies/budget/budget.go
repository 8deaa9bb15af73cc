package budget

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/weir-go/weir/internal/clock"
	"github.com/weir-go/weir/strategies/internal/window"
)

// A Budget limits the extra attempts: those after the first of each execution. It must be safe for concurrent use. Most
// programs use a [Ratio], which [New] makes. A program's own Budget can, for example, keep a Ratio for each tenant, and
// find it by the context.
type Budget interface {
	// Count counts an execution. A strategy calls it before the first attempt.
	Count(ctx context.Context)
	// TryAcquire takes an extra attempt from the budget, and reports whether there was one left. It does not wait.
	TryAcquire(ctx context.Context) bool
}

// A Refunder is a [Budget] that takes back an extra attempt which was acquired and then not made. [Ratio] is one.
type Refunder interface {
	// Refund gives one extra attempt back.
	Refund(ctx context.Context)
}

// Refund gives an extra attempt back to b if b is a [Refunder].
func Refund(ctx context.Context, b Budget) {
	if r, ok := b.(Refunder); ok {
		r.Refund(ctx)
	}
}

// Describe returns the [Statistics] of b, or nil if b has no method Statistics.
func Describe(b Budget) any {
	if s, ok := b.(interface{ Statistics() Statistics }); ok {
		return s.Statistics()
	}
	return nil
}

// ErrExhausted says that there was no other attempt because the budget was exhausted. A retry joins it with the last
// failure: [errors.Is] finds both.
var ErrExhausted = errors.New("budget: exhausted")

// EventExhausted is the event of an attempt that was not made because the budget was exhausted. Its Source is the
// strategy that would have made the attempt. Warning.
const EventExhausted = "OnBudgetExhausted"

// A Ratio is a [Budget] that allows a share of the executions in a sliding window, and a number for each second of the
// window in addition. Make one with [New]. It is safe for concurrent use.
//
// TryAcquire allows an extra attempt if
//
//	taken + 1 ≤ Ratio × executions + MinPerSecond × Window in seconds
//
// where executions and taken are those within the Window.
type Ratio struct {
	window *window.Window // counts executions, and with mu held what was taken

	mu      sync.Mutex // guards what follows
	options Options    // with the defaults filled in
	refused int64
}

// What the window of a Ratio counts.
const (
	executions = iota
	taken
)

// New makes a budget. If o is nil, the defaults apply. The error is a [weir.OptionsError].
func New(o *Options) (*Ratio, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	return &Ratio{options: o.withDefaults(), window: window.New(clock.Now(), segment, int(LongestWindow/segment))}, nil
}

// Count implements [Budget].
func (r *Ratio) Count(context.Context) {
	if s := r.window.At(clock.Now()); s != nil {
		s.Counts[executions].Add(1)
	}
}

// TryAcquire implements [Budget].
func (r *Ratio) TryAcquire(context.Context) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := clock.Now()
	s := r.window.At(now)
	if _, left := r.counted(now); s == nil || left < 1 {
		r.refused++
		return false
	}
	s.Counts[taken].Add(1)
	return true
}

// Refund implements [Refunder]. It removes the oldest extra attempt of the window, so that a refund never allows more
// than if the attempt had not been taken.
func (r *Ratio) Refund(context.Context) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.window.TakeBack(clock.Now(), r.options.segments())
}

// counted returns what was counted in the window that ends now, and how many extra attempts that leaves: less than 0 if Reconfigure has
// allowed fewer. r.mu is held.
func (r *Ratio) counted(now time.Duration) (counts [2]int64, left float64) {
	counts = r.window.Sum(now, r.options.segments())
	return counts, r.options.allowed(counts[executions]) - float64(counts[taken]) + 1e-6 // 0.29*100 is less than 29
}

// Reconfigure changes the options. What was counted and taken before still counts, also in a longer window. If o is nil,
// the options become the defaults. If the error, a [weir.OptionsError], is not nil, nothing changes.
func (r *Ratio) Reconfigure(o *Options) error {
	if err := o.Validate(); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.options = o.withDefaults()
	return nil
}

// Options returns the options in force with the defaults filled in. New makes an equal budget of them.
func (r *Ratio) Options() Options {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.options
}

// Statistics are the figures of a budget at one moment.
type Statistics struct {
	Executions int64 `json:"executions"` // executions within the window
	Taken      int64 `json:"taken"`      // extra attempts within the window
	Available  int64 `json:"available"`  // extra attempts that are allowed now
	Refused    int64 `json:"refused"`    // extra attempts that were refused since the budget was made
}

// Statistics returns the present figures.
func (r *Ratio) Statistics() Statistics {
	r.mu.Lock()
	defer r.mu.Unlock()
	counts, left := r.counted(clock.Now())
	return Statistics{Executions: counts[executions], Taken: counts[taken], Available: saturated(left), Refused: r.refused}
}

// String returns the figures: "3 extra attempts taken, 37 left, for 200 executions".
func (s Statistics) String() string {
	return fmt.Sprintf("%d extra attempts taken, %d left, for %d executions", s.Taken, s.Available, s.Executions)
}
