package jobs

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"
)

// Errors of this package. They come wrapped in a text with the details: compare with [errors.Is].
var (
	// ErrInvalidOptions is returned for options, declarations and configurations that cannot be; the text names
	// each field and what would be right.
	ErrInvalidOptions = errors.New("jobs: invalid options")
	// ErrUnknownLimiter: a job names a limiter that was never set or has been removed. The job fails with it.
	ErrUnknownLimiter = errors.New("jobs: unknown limiter")
	// ErrKey: a key cannot be made of the job's arguments, or it is too long. The job fails with it.
	ErrKey = errors.New("jobs: no key")
	// ErrNotInstalled: the worker or the arguments of a job declare a throttle, and the River client that runs it
	// has no plugin of a [Throttler]. The job fails with it instead of running unthrottled.
	ErrNotInstalled = errors.New("jobs: the River client has no plugin of a Throttler")
	// ErrForeignJob: the job that is to be throttled is not running in the database of the Throttler's pool, so its
	// end could not be seen. The job fails with it.
	ErrForeignJob = errors.New("jobs: the job is not running in this database")
	// ErrInUse is returned by Remove.
	ErrInUse = errors.New("jobs: limiter in use")
	// ErrLost is the cause of a running job's context when the job does not hold what it was granted any more: its
	// lease could not be renewed in time, another run of the same job has taken its place, or an operator released it.
	ErrLost = errors.New("jobs: slot lost")
	// ErrClosed is returned by methods of a closed Throttler.
	ErrClosed = errors.New("jobs: Throttler closed")
)

// ThrottledError is why a job was cancelled by [Cancel]. It is in the job's errors.
type ThrottledError struct {
	Limiter Ref
	Next    time.Time // when the job could have run, as far as could be told; zero: unknown
}

func (e *ThrottledError) Error() string { return "jobs: throttled by " + e.Limiter.String() }

// problems collects what is wrong with some options. A format has the names of fields in braces, as they are in Go.
type problems struct {
	list []string
	file bool // they are of a configuration file, where MaxCount is max_count
}

func (p *problems) add(format string, args ...any) {
	format = fieldName.ReplaceAllStringFunc(format, func(name string) string {
		if name = name[1 : len(name)-1]; p.file {
			name = strings.ToLower(innerCapital.ReplaceAllString(name, "_$0"))
		}
		return name
	})
	p.list = append(p.list, fmt.Sprintf(format, args...))
}

// include adds the problems of something inside.
func (p *problems) include(where string, inner problems) {
	for _, problem := range inner.list {
		p.list = append(p.list, where+problem)
	}
}

var (
	fieldName    = regexp.MustCompile(`\{[A-Z]\w*\}`)
	innerCapital = regexp.MustCompile(`\B[A-Z]`)
)

func (p *problems) err() error {
	if len(p.list) == 0 {
		return nil
	}
	return fmt.Errorf("%w: %s", ErrInvalidOptions, strings.Join(p.list, "; "))
}
