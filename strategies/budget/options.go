package budget

import (
	"cmp"
	"math"
	"time"

	"github.com/weir-go/weir/internal/validate"
)

// The defaults of [Options].
const (
	defaultRatio        = 0.2
	defaultMinPerSecond = 10
	defaultWindow       = 10 * time.Second
)

// LongestWindow is the longest [Options.Window].
const LongestWindow = time.Minute

// Options say how many extra attempts are allowed. The zero Options are the defaults: within ten seconds a fifth of the
// executions, and a hundred in addition.
type Options struct {
	// Ratio is the number of extra attempts for each execution of the window, such as 0.1 for one in ten. The default
	// is 0.2; -1 is none.
	Ratio float64 `json:"ratio,omitempty" yaml:"ratio,omitempty" reload:"off,default=0.2"`
	// MinPerSecond is the number of extra attempts that are allowed in addition for each second of the window; all of
	// them can come at once. The default is 10; -1 is none. It matters when there are few executions, as after the
	// start of the program.
	MinPerSecond int `json:"min_per_second,omitempty" yaml:"min_per_second,omitempty" reload:"off,default=10"`
	// Window is how long executions and extra attempts count, to a quarter of a second. It is from a second to a
	// minute. The default is 10 s.
	Window time.Duration `json:"window,omitempty" yaml:"window,omitempty" reload:"default=10s"`
}

// withDefaults returns o with the defaults filled in. A nil o stands for the zero Options.
func (o *Options) withDefaults() Options {
	full := *cmp.Or(o, new(Options))
	full.Ratio = cmp.Or(full.Ratio, defaultRatio)
	full.MinPerSecond = cmp.Or(full.MinPerSecond, defaultMinPerSecond)
	full.Window = cmp.Or(full.Window, defaultWindow)
	return full
}

// allowed returns how many extra attempts are allowed in a window with that many executions.
func (o *Options) allowed(executions int64) float64 {
	return max(o.Ratio, 0)*float64(executions) + float64(max(o.MinPerSecond, 0))*o.Window.Seconds()
}

// segment is the length of a segment of the window. It does not depend on the options, so that Reconfigure can change them
// and keep what was counted.
const segment = time.Second / 4

// segments returns the number of segments of the window.
func (o *Options) segments() int { return int((o.Window + segment - 1) / segment) }

// Validate returns a [weir.OptionsError] with everything that is wrong with o, or nil. [New] and Reconfigure call it; a
// program that reads options from a file can call it earlier.
func (o *Options) Validate() error {
	o = cmp.Or(o, new(Options))
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

// saturated returns f rounded down, but at least 0 and at most the largest int64.
func saturated(f float64) int64 {
	if f >= math.MaxInt64 {
		return math.MaxInt64
	}
	return int64(max(f, 0))
}
