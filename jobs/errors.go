package jobs

import (
	"errors"
	"fmt"
	"time"

	"github.com/weir-go/weir"
)

// Errors of this package. They are wrapped in errors with the details: compare with [errors.Is]. Wrong options,
// declarations and configurations are a [weir.OptionsError].
var (
	// ErrUnknownLimiter: a job names a limiter that was never set or has been removed. The job fails with it.
	ErrUnknownLimiter = errors.New("jobs: unknown limiter")
	// ErrKey: a key cannot be made of the job's arguments, or it is too long. The job fails with it.
	ErrKey = errors.New("jobs: no key")
	// ErrNotInstalled: the worker or the arguments of a job declare a throttle, and the River client that runs it
	// has no plugin of a [Throttler]. The job fails with it instead of running unthrottled.
	ErrNotInstalled = errors.New("jobs: the River client has no plugin of a Throttler")
	// ErrForeignJob: the job is not running in the database of the Throttler's pool, so the Throttler could not see its
	// end; or this run of it was ended there, by River or by hand, before it began. The job fails with it.
	ErrForeignJob = errors.New("jobs: the job is not running in this database")
	// ErrLost is the cause of a running job's context when the job no longer holds its slots: its lease could not be
	// renewed in time, another run of the job has taken its place, or an operator released them.
	ErrLost = errors.New("jobs: slot lost")
	// ErrClosed: the Throttler was closed. A throttled job that starts then is snoozed.
	ErrClosed = errors.New("jobs: Throttler closed")
)

// A ThrottledError is the error of a job that was cancelled because of [Throttle.Cancel]. River stores it with the job.
type ThrottledError struct {
	Limiter Ref
	Next    time.Time // when the job could have run, as far as could be told; zero: unknown
}

func (e *ThrottledError) Error() string { return "jobs: throttled by " + e.Limiter.String() }

// invalid returns a [weir.OptionsError] with the text of err. Braces in it, which may be the user's, are not names of
// fields.
func invalid(err error) error {
	return &weir.OptionsError{Package: "jobs", Fields: []weir.FieldError{{Problem: err.Error(), Err: err}}}
}

// short returns the beginning of a text of the caller, so that an error stays readable.
func short(text string) string { return fmt.Sprintf("%.120s", text) }
