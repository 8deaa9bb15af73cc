package budget

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
)

// A Budget says how many attempts there may be on top of the first ones. It is safe
// for concurrent use. [New] makes the one that nearly everybody wants; another
// might keep one for each tenant, and find it by the context.
type Budget interface {
	// Count counts an execution: a strategy calls it before the first attempt.
	Count(ctx context.Context)
	// TryAcquire takes an extra attempt out of the budget, and tells whether there
	// was one left. It does not wait.
	TryAcquire(ctx context.Context) bool
}

// A Refunder is a [Budget] that takes back an extra attempt which was acquired and then
// not made. [Ratio] is one.
type Refunder interface {
	// Refund gives one extra attempt back.
	Refund(ctx context.Context)
}

// Refund gives an extra attempt back to b if it is a [Refunder], and does nothing if
// it is not.
func Refund(ctx context.Context, b Budget) {
	if r, ok := b.(Refunder); ok {
		r.Refund(ctx)
	}
}

// ErrExhausted is why there was no other attempt. A retry joins it with the last
// failure: [errors.Is] finds both.
var ErrExhausted = errors.New("budget: exhausted")

// EventExhausted is the event of an attempt that was not made because the budget
// is exhausted; its Source is the strategy that would have made it. Warning.
const EventExhausted = "OnBudgetExhausted"

// A Ratio is a [Budget] of so many extra attempts for each execution, and a few
// each second besides. A nil *Ratio allows everything.
type Ratio struct {
	executions ring

	deciding sync.Mutex // for what follows
	options  Options    // in force, what is off is 0
	taken    ring
	refused  int64
}

// New makes a budget. A nil o means the defaults.
func New(o *Options) (*Ratio, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	return &Ratio{options: o.withDefaults()}, nil
}

// Count implements [Budget]. It takes no lock.
func (r *Ratio) Count(context.Context) {
	if r != nil {
		r.executions.add(slotNow())
	}
}

// TryAcquire implements [Budget].
func (r *Ratio) TryAcquire(context.Context) bool {
	if r == nil {
		return true
	}
	now := slotNow()
	r.deciding.Lock()
	defer r.deciding.Unlock()
	executions, taken := r.inWindow(now)
	if float64(taken)+1 > r.options.allowed(executions) {
		r.refused++
		return false
	}
	r.taken.add(now)
	return true
}

// Refund implements [Refunder]. It removes the oldest attempt of the window, so the others count for
// as long as before, or longer.
func (r *Ratio) Refund(context.Context) {
	if r == nil {
		return
	}
	r.deciding.Lock()
	defer r.deciding.Unlock()
	r.taken.takeBack(slotNow(), r.options.slots())
}

func (r *Ratio) inWindow(now uint64) (executions, taken uint64) {
	n := r.options.slots()
	return r.executions.sum(now, n), r.taken.sum(now, n)
}

// Reconfigure changes the options. What was counted and taken stays so, also where
// the window is longer now: nobody gets a fresh budget.
func (r *Ratio) Reconfigure(o *Options) error {
	if err := o.Validate(); err != nil {
		return err
	}
	r.deciding.Lock()
	defer r.deciding.Unlock()
	r.options = o.withDefaults()
	return nil
}

// Options returns the options in force with the defaults filled in: New makes the
// same of them again.
func (r *Ratio) Options() Options {
	if r == nil {
		return Options{}
	}
	r.deciding.Lock()
	defer r.deciding.Unlock()
	return r.options.written()
}

// Statistics say how a budget is just now.
type Statistics struct {
	Executions int64 `json:"executions"` // counted within the window
	Taken      int64 `json:"taken"`      // extra attempts within the window
	Available  int64 `json:"available"`  // so many more there may be now
	Refused    int64 `json:"refused"`    // extra attempts since the budget was made
}

// Statistics returns how the budget is just now.
func (r *Ratio) Statistics() Statistics {
	if r == nil {
		return Statistics{}
	}
	now := slotNow()
	r.deciding.Lock()
	defer r.deciding.Unlock()
	executions, taken := r.inWindow(now)
	return Statistics{
		Executions: int64(executions),
		Taken:      int64(taken),
		Available:  saturated(r.options.allowed(executions) - float64(taken)),
		Refused:    r.refused,
	}
}

// String returns the figures: "3 extra attempts taken, 37 left, for 200 executions".
func (s Statistics) String() string {
	return fmt.Sprintf("%d extra attempts taken, %d left, for %d executions", s.Taken, s.Available, s.Executions)
}

// String returns the String of r's Statistics.
func (r *Ratio) String() string {
	if r == nil {
		return "everything is allowed"
	}
	return r.Statistics().String()
}

// LogValue implements [slog.LogValuer].
func (r *Ratio) LogValue() slog.Value { return slog.StringValue(r.String()) }
