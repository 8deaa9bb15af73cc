package filewatch

import (
	"context"
	"math"
	"os"
	"time"

	"github.com/weir-go/weir/internal/validate"
)

// The values of options that are 0.
const (
	DefaultInterval = 2 * time.Second
	DefaultSettle   = 200 * time.Millisecond
	DefaultMaxSize  = 8 << 20
)

// minInterval is the smallest Interval and Settle. A smaller one mostly is a number without a unit.
const minInterval = time.Millisecond

// Options are the options of a [Watcher]. Path and Load are required.
type Options struct {
	// Path is the file, or a symbolic link to it. A relative path is relative to the working directory at the time of
	// [New].
	Path string
	// Interval is the time between two polls; 0 means 2 s. If it is -1, there are no polls: the file is only read by
	// Reload and for a signal, and nothing is tried again.
	Interval time.Duration
	// Settle is the time between the two reads that must agree; 0 means 200 ms.
	Settle time.Duration
	// MaxSize is how many bytes the file can have; 0 means 8 MiB, -1 no limit.
	MaxSize int64
	// Load gets new content, which it can keep. If it returns an error or panics, the content is refused, and what
	// was loaded before must still be in force. Load is not called concurrently with itself, and must not call
	// Reload.
	//
	// The context is that of Run or Reload. What Load makes should not depend on it: a caller's context can end as
	// soon as Reload has returned. If the context has ended when Load fails, the content does not count as refused.
	Load func(ctx context.Context, content []byte) error
	// Problem is called when the problem changes: with a [ReadError] if the file could not be read, with Load's error
	// if the content was refused, and with nil when the problem is over. Errors with the same text are the same
	// problem, so one that lasts is reported once; a failure of Reload, or for a signal, is always reported. Problem
	// is not called concurrently with itself, and must not call Reload. If it panics, the panic reaches the caller of
	// Run or Reload. If nil, problems are not reported.
	Problem func(err error)
	// Signals makes Run reload the file for every signal that comes from it; usually the channel of [NotifyHangup].
	// If nil, there are none.
	Signals <-chan os.Signal
}

// noMaxSize is the MaxSize without a limit. It leaves room for the one byte that shows that a file is too large.
const noMaxSize = math.MaxInt64 - 1

// withDefaults returns o with the defaults. Interval is 0 if there are no polls, and MaxSize is noMaxSize if there is
// no limit.
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
		full.MaxSize = noMaxSize
	}
	full.MaxSize = min(full.MaxSize, noMaxSize)
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
	if o.Interval != 0 && o.Interval != -1 && o.Interval < minInterval {
		p.Add("Interval", o.Interval, "must be at least %v, 0 for %v, or -1 for none", minInterval, DefaultInterval)
	}
	if o.Settle != 0 && o.Settle < minInterval {
		p.Add("Settle", o.Settle, "must be at least %v, or 0 for %v", minInterval, DefaultSettle)
	}
	if o.MaxSize < -1 {
		p.Add("MaxSize", o.MaxSize, "must be at least 0, or -1 for no limit")
	}
	return p.Err("reload")
}
