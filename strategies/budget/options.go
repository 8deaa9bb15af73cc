package budget

import (
	"math"
	"time"

	"github.com/weir-go/weir/internal/validate"
)

// The defaults of [Options].
const (
	DefaultRatio        = 0.2
	DefaultMinPerSecond = 10
	DefaultWindow       = 10 * time.Second
)

// LongestWindow is the longest [Options.Window].
const LongestWindow = time.Minute

// Options say how many extra attempts are allowed. The zero Options are the defaults: within ten seconds a fifth of the
// executions, and a hundred in addition.
type Options struct {
	// Ratio is the number of extra attempts for each execution of the window, such as 0.1 for one in ten. The default
	// is 0.2; -1 is none.
	Ratio float64 `json:"ratio,omitempty" yaml:"ratio,omitempty"`
	// MinPerSecond is the number of extra attempts that are allowed in addition for each second of the window; all of
	// them can come at once. The default is 10; -1 is none. It matters when there are few executions, as after the
	// start of the program.
	MinPerSecond int `json:"min_per_second,omitempty" yaml:"min_per_second,omitempty"`
	// Window is how long executions and extra attempts count, to a quarter of a second. It is from a second to a
	// minute. The default is 10 s.
	Window time.Duration `json:"window,omitempty" yaml:"window,omitempty"`
}

// withDefaults returns o with the defaults filled in. What is off is 0 in it. A nil o stands for the zero Options.
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

// written returns o, which comes from withDefaults, with -1 for what is off.
func (o Options) written() Options {
	if o.Ratio == 0 {
		o.Ratio = -1
	}
	if o.MinPerSecond == 0 {
		o.MinPerSecond = -1
	}
	return o
}

// allowed returns how many extra attempts are allowed in a window with that many executions.
func (o Options) allowed(executions uint64) float64 {
	least := float64(o.MinPerSecond) * o.Window.Seconds()
	return o.Ratio*float64(executions) + least
}

// slots returns the number of slots of the window.
func (o Options) slots() uint64 { return uint64((o.Window + slot - 1) / slot) }

// Validate returns a [weir.OptionsError] with everything that is wrong with o, or nil. [New] and Reconfigure call it; a
// program that reads options from a file can call it earlier.
func (o *Options) Validate() error {
	if o == nil {
		return nil
	}
	var p validate.Problems
	if r := o.Ratio; r != -1 && (r < 0 || math.IsNaN(r) || math.IsInf(r, 0)) {
		p.Add("Ratio", r, "must be at least 0, or -1 for none")
	}
	if o.MinPerSecond < -1 {
		p.Add("MinPerSecond", o.MinPerSecond, "must be at least 0, or -1 for none")
	}
	if w := o.Window; w != 0 && (w < time.Second || w > LongestWindow) {
		p.Add("Window", w, "must be from %v to %v", time.Second, LongestWindow)
	}
	return p.Err("budget")
}

// saturated returns f rounded down, or the limit that is nearest to it, of 0 and the largest int64.
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
