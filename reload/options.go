package reload

import (
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/weir-go/weir/internal/validate"
	"github.com/weir-go/weir/registry"
)

const (
	defaultInterval = 2 * time.Second
	defaultSettle   = 200 * time.Millisecond
	// minInterval is the smallest Interval and Settle. It refuses numbers that lack a unit: 2 is 2 ns.
	minInterval = time.Millisecond
)

// Options are the options of [Start]. The zero value has the defaults.
type Options struct {
	// Kinds are the kinds and functions of the program that the file can name. If nil, there are weir's own kinds and
	// no functions.
	Kinds *Kinds
	// Interval is the time between two looks at the file; 0 means 2 s. If it is -1, the file is only read again by
	// [Watcher.Reload], and by SIGHUP if Hangup is set.
	Interval time.Duration
	// Settle is the time between two reads that must agree before a change is loaded, so that a file that is being written is
	// not loaded; 0 means 200 ms. If 50 reads in a row disagree, the last one is loaded. The first load, [Watcher.Reload] and
	// SIGHUP load the file at once.
	Settle time.Duration
	// Read returns the content to load, in place of that of the file at path, which then is only a name in messages and in
	// [Status]. It is for content that is made of several files, or of files in another format. Read is called for each
	// look, from one goroutine at a time, and must return the same content as long as nothing has changed. Its error keeps
	// what is in force, as wrong content does; a [*FileError] says where in the files the reason is. A panic is recovered
	// and becomes an error. If nil, the file at path is read.
	Read func() ([]byte, error)
	// AllowMissing reports whether Start succeeds if the file does not exist. Its pipelines are defined as soon as it
	// exists. If false, Start returns an error.
	AllowMissing bool
	// After is a stopped Watcher of the same registry. The new Watcher takes over its pipelines, and removes the
	// pipelines that its own file does not have. The file can be another one. If nil, pipelines of an earlier Watcher
	// count as defined by the program, and a file with one of them is refused.
	After *Watcher
	// Require names pipelines that the program needs. A file without one of them is refused like an invalid one, so
	// that calls do not fail when a pipeline is renamed in the file and not in the program. If empty, a file can
	// leave out any pipeline; leaving out one that the program uses is logged as a warning.
	Require []string
	// Hangup reports whether SIGHUP reads the file again, on systems that have this signal, instead of ending the
	// process. If false, the signal is not handled here, and by Go's default it ends the process.
	Hangup bool
	// Logger gets a line for each version of the file that came into force or was refused, except a refused first
	// one, whose error [Start] returns. If nil, it is [slog.Default]. If its handler panics, the panic is recovered
	// and the load goes on.
	Logger *slog.Logger
	// InForce is called with each file that has come into force, right after its pipelines, also with the first one
	// before [Start] returns. It is for what sections say that is not in a pipeline, such as the level of a log:
	// [SectionOf] has it. Calls do not overlap. If it panics, the panic is logged and the load goes on. If nil, nothing
	// is called.
	InForce func(f *File)
	// Reporter is told of each attempt to load; package telemetry has one. If nil, attempts are not reported.
	Reporter Reporter
}

// A Reporter is told of each attempt to load, one at a time.
type Reporter interface {
	// ConfigReloaded is called after each attempt. err is nil if the file came into force, and otherwise the reason why
	// it did not. The next attempt begins after ConfigReloaded has returned. If ConfigReloaded panics, the panic is
	// logged and the load goes on. ConfigReloaded must not wait for [Watcher.Reload] or [Watcher.Stop], which wait for it.
	ConfigReloaded(at time.Time, err error)
}

// validate returns what is wrong with the options of a Watcher of r and the file at path.
func (o *Options) validate(r *registry.Registry, path string) error {
	var p validate.Problems
	if path == "" {
		p.Add("Path", nil, "must be set")
	}
	if o.Interval != 0 && o.Interval != -1 && o.Interval < minInterval {
		p.Add("Interval", o.Interval, "must be at least %v, 0 for %v, or -1 for none", minInterval, defaultInterval)
	}
	if o.Settle != 0 && o.Settle < minInterval {
		p.Add("Settle", o.Settle, "must be at least %v, or 0 for %v", minInterval, defaultSettle)
	}
	if i := slices.Index(o.Require, ""); i >= 0 {
		p.Add(fmt.Sprintf("Require[%d]", i), nil, "must not be empty")
	}
	if o.After != nil {
		switch {
		case o.After.registry != r:
			p.Add("After", nil, "must be a Watcher of the same registry")
		case !o.After.stopped():
			p.Add("After", nil, "must be a Watcher that was stopped")
		}
	}
	return p.Err("reload")
}
