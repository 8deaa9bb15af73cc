package filewatch

import (
	"context"
	"math"
	"os"
	"time"

	"github.com/weir-go/weir/internal/validate"
)

// What a zero in the [Options] stands for.
const (
	DefaultInterval = 2 * time.Second
	DefaultSettle   = 200 * time.Millisecond
	DefaultMaxSize  = 8 << 20
)

// shortest is the least Interval and Settle. Below it there is no use in it, and
// mostly a number whose unit was forgotten.
const shortest = time.Millisecond

// Options say which file is watched and who is told. Path and Load are required.
type Options struct {
	// Path is the file, or a symbolic link to it. A relative one stands for where
	// it leads from the working directory at the time of [New].
	Path string
	// Interval is the time between two polls; 0 is 2 s, -1 is no polls at all: then
	// the file is read only by Reload and for a signal, and nothing is retried.
	Interval time.Duration
	// Settle is the time between the two reads that must agree; 0 is 200 ms.
	Settle time.Duration
	// MaxSize is the most bytes that the file may have; 0 is 8 MiB, -1: there is no
	// limit.
	MaxSize int64
	// Load takes new content, which it may keep. An error, or a panic, refuses it:
	// what was loaded before must then still be in force. Load is never called
	// concurrently with itself, and must not call Reload.
	//
	// The context is Run's or Reload's. What Load makes should not hang on it: a
	// caller's context may end as soon as Reload has returned. If the context has
	// ended when Load fails, the content does not count as refused.
	Load func(ctx context.Context, content []byte) error
	// Problem is called when another thing is wrong than before, or nothing any
	// more: then with nil. That is a [ReadError] if the file could not be read, and
	// otherwise what Load returned. Errors with the same text are the same thing,
	// so one that lasts is reported once; one that somebody asked for, with Reload
	// or a signal, is always reported. Calls follow one another; they must not call
	// Reload. A panic of it goes to the caller of Run or Reload. If nil, it is not called.
	Problem func(err error)
	// Signals makes Run reload the file for every signal that comes from it, as
	// Reload does; usually [NotifyHangup]'s. nil: there are none.
	Signals <-chan os.Signal
}

// maxMaxSize leaves room for the one byte more that tells that a file is too large.
const maxMaxSize = math.MaxInt64 - 1

// withDefaults returns o with what a zero stands for. What is off is 0
// afterwards, and a size without a limit the largest there is.
func (o *Options) withDefaults() Options {
	full := *o
	switch full.Interval {
	case 0:
		full.Interval = DefaultInterval
	case -1:
		full.Interval = 0
	}
	if full.Settle == 0 {
		full.Settle = DefaultSettle
	}
	switch full.MaxSize {
	case 0:
		full.MaxSize = DefaultMaxSize
	case -1:
		full.MaxSize = maxMaxSize
	}
	full.MaxSize = min(full.MaxSize, maxMaxSize)
	return full
}

// Validate returns a [weir.OptionsError] with everything that is wrong with o, or nil. New calls it.
func (o *Options) Validate() error {
	if o == nil {
		o = &Options{}
	}
	var p validate.Problems
	if o.Path == "" {
		p.Add("Path", nil, "must be set")
	}
	if o.Load == nil {
		p.Add("Load", nil, "must be set")
	}
	if o.Interval != 0 && o.Interval != -1 && o.Interval < shortest {
		p.Add("Interval", o.Interval, "must be at least %v, 0 for %v, or -1 for none", shortest, DefaultInterval)
	}
	if o.Settle != 0 && o.Settle < shortest {
		p.Add("Settle", o.Settle, "must be at least %v, or 0 for %v", shortest, DefaultSettle)
	}
	if o.MaxSize < -1 {
		p.Add("MaxSize", o.MaxSize, "must be at least 0, or -1 for no limit")
	}
	return p.Err("reload")
}
