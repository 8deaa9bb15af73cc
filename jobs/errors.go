package jobs

import (
	"errors"
	"fmt"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/validate"
)

// Errors of this package. They come wrapped in a text with the details: compare with [errors.Is]. Options, declarations
// and configurations that are wrong are a [weir.OptionsError].
var (
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

// invalid returns a [weir.OptionsError] of one field.
func optionError(path string, value any, problem string, args ...any) error {
	var p validate.Problems
	p.Add(path, value, problem, args...)
	return p.Err("jobs")
}

// refused returns a [weir.OptionsError] with the text of err, which can be the user's: its braces are not names of fields.
func optionsError(err error) error {
	return &weir.OptionsError{Package: "jobs", Fields: []weir.FieldError{{Problem: err.Error(), Err: err}}}
}

// short returns the beginning of a text of the caller, so that an error stays readable.
func short(text string) string { return fmt.Sprintf("%.120s", text) }
