package budget

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"time"
)

// What a zero in the [Options] stands for.
const (
	DefaultRatio        = 0.2
	DefaultMinPerSecond = 10
	DefaultWindow       = 10 * time.Second
)

// LongestWindow is the longest [Options.Window].
const LongestWindow = time.Minute

// Options say how many extra attempts there may be. The zero Options are the
// defaults: within ten seconds a fifth of the executions, and a hundred.
type Options struct {
	// Ratio is how many extra attempts there may be for each execution of the
	// window, 0.1 for one in ten; 0 is 0.2, -1 is none.
	Ratio float64 `json:"ratio,omitempty" yaml:"ratio,omitempty"`
	// MinPerSecond is how many there may be besides for each second of the window,
	// all of them at once, too; 0 is 10, -1 is none. It is for times of few
	// executions, and those just after the start.
	MinPerSecond int `json:"min_per_second,omitempty" yaml:"min_per_second,omitempty"`
	// Window is how long what was counted and taken matters, to a quarter of a
	// second; 0 is 10 s. From a second to a minute.
	Window time.Duration `json:"window,omitempty" yaml:"window,omitempty"`
}

// withDefaults returns o, or the zero Options for nil, with what a zero stands
// for. What is off is 0 afterwards.
func (o *Options) withDefaults() Options {
	var full Options
	if o != nil {
		full = *o
	}
	switch full.Ratio {
	case 0:
		full.Ratio = DefaultRatio
	case -1:
		full.Ratio = 0
	}
	switch full.MinPerSecond {
	case 0:
		full.MinPerSecond = DefaultMinPerSecond
	case -1:
		full.MinPerSecond = 0
	}
	if full.Window == 0 {
		full.Window = DefaultWindow
	}
	return full
}

// written is the way back from withDefaults.
func (o Options) written() Options {
	if o.Ratio == 0 {
		o.Ratio = -1
	}
	if o.MinPerSecond == 0 {
		o.MinPerSecond = -1
	}
	return o
}

// allowed returns how many extra attempts a window of so many executions may have.
func (o Options) allowed(executions uint64) float64 {
	least := float64(o.MinPerSecond) * o.Window.Seconds()
	return o.Ratio*float64(executions) + least
}

// slots returns how many slots a window has.
func (o Options) slots() uint64 { return uint64((o.Window + slot - 1) / slot) }

// Validate returns every problem in one error, or nil. [New] calls it; a
// configuration file's reader may want it earlier.
func (o *Options) Validate() error {
	if o == nil {
		return nil
	}
	var problems []string
	add := func(format string, args ...any) { problems = append(problems, fmt.Sprintf(format, args...)) }
	if r := o.Ratio; r != -1 && (r < 0 || math.IsNaN(r) || math.IsInf(r, 0)) {
		add("Ratio is %v, must be at least 0, or -1 for none", r)
	}
	if o.MinPerSecond < -1 {
		add("MinPerSecond is %d, must be at least 0, or -1 for none", o.MinPerSecond)
	}
	if w := o.Window; w != 0 && (w < time.Second || w > LongestWindow) {
		add("Window is %v, must be from %v to %v", w, time.Second, LongestWindow)
	}
	if len(problems) == 0 {
		return nil
	}
	return errors.New("budget: invalid options: " + strings.Join(problems, "; "))
}

// saturated returns f without what is behind its point, as far as an int64 goes.
func saturated(f float64) int64 {
	switch {
	case f <= 0:
		return 0
	case f >= math.MaxInt64:
		return math.MaxInt64
	default:
		return int64(f)
	}
}
