package weirhttp

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math"
	"net/http"
	"strings"
	"time"

	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/strategies/timeout"
)

// longest is what durations saturate at.
const longest = time.Duration(math.MaxInt64)

// StatusError is how a response that counts as a failure looks to the strategies of
// a [RoundTripper]'s pipeline. Its caller gets the response instead; only if the
// caller's own context has ended, the error may have a StatusError in it, as the
// last that was heard of the server, and its response is closed.
type StatusError struct {
	// Response is the response. A strategy may look at it, and must not close it.
	Response *http.Response

	retryAfter time.Duration
	asks       bool // retryAfter is known
	repeatable bool
	exchange   *exchange
}

// Error says which host answered what to which method; not the path, which may
// have something in it that is not for a log.
func (e *StatusError) Error() string {
	request := "a request"
	if r := e.Response.Request; r != nil && r.URL != nil {
		request = r.Method + " " + r.URL.Host
	}
	text := fmt.Sprintf("weirhttp: %s: %d %s", request, e.Response.StatusCode, http.StatusText(e.Response.StatusCode))
	if e.asks {
		text += fmt.Sprintf(", retry after %v", e.retryAfter)
	}
	return text
}

// RetryAfter is what the response asks for, up to [TransportOptions.MaxRetryAfter].
// See [pipeline.RetryAfter].
func (e *StatusError) RetryAfter() (d time.Duration, ok bool) { return e.retryAfter, e.asks }

// Retryable tells whether the request may be sent again.
func (e *StatusError) Retryable() bool { return e.repeatable }

// finalError marks an error of a request that is not sent again.
type finalError struct{ error }

func (e *finalError) Unwrap() error   { return e.error }
func (e *finalError) Retryable() bool { return false }

// Retryable tells whether the outcome of an attempt is worth another one. It is made
// for the Handle of a retry's options: every failure is, but for the end of the
// caller's context, certificates that are not trusted, and requests that the
// [RoundTripper] does not send again. Those it does not need to wait for.
func Retryable(_ any, err error) bool {
	if err == nil {
		return false
	}
	if timedOut, ok := errors.AsType[*timeout.Error](err); ok {
		return timedOut.Err == nil || mayRepeat(timedOut.Err)
	}
	if pipeline.IsContextError(err) {
		return false
	}
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return false
	}
	return mayRepeat(err)
}

func mayRepeat(err error) bool {
	e, ok := errors.AsType[interface {
		error
		Retryable() bool
	}](err)
	return !ok || e.Retryable()
}

// A refusal is the error of an attempt that was not made.
type refusal struct {
	text    string
	nothing bool // there is nothing more to come of this request
}

func (e *refusal) Error() string { return e.text }

// Retryable is false: the answer would be the same.
func (e *refusal) Retryable() bool { return false }

// Is lets a retry without a Handle of its own stop here: by default strategies leave
// an end of the context alone. While another attempt runs it would be wrong: a hedge
// would take it for the result.
func (e *refusal) Is(target error) bool { return e.nothing && target == context.Canceled }

var (
	errSentBefore    = &refusal{text: "weirhttp: the request has been sent, and must not be sent again", nothing: true}
	errTooLate       = &refusal{text: "weirhttp: the request has been answered", nothing: true}
	errAtTheSameTime = &refusal{text: "weirhttp: the request is being sent, and must not be at the same time"}

	errPanicked = errors.New("weirhttp: the base transport panicked")
)

func refused(err error) bool {
	_, ok := errors.AsType[*refusal](err)
	return ok
}

// noteRetryAfter returns what the response asks for, and pauses its host if it is
// one for that.
func (x *exchange) noteRetryAfter(resp *http.Response) (d time.Duration, ok bool) {
	lines := resp.Header[retryAfterField]
	if len(lines) == 0 {
		return 0, false
	}
	if d, ok = parseRetryAfter(lines[0]); !ok {
		return 0, false
	}
	options := &x.transport.options
	d = min(d, options.MaxRetryAfter)
	switch resp.StatusCode {
	case http.StatusTooManyRequests, http.StatusServiceUnavailable:
		if options.PauseOnRetryAfter != nil {
			options.PauseOnRetryAfter.Pause(hostOf(x.request), d)
		}
	}
	return d, true
}

// parseRetryAfter reads both forms: seconds and a date. A date in the past is 0.
func parseRetryAfter(text string) (d time.Duration, ok bool) {
	text = strings.Trim(text, " \t")
	if text == "" {
		return 0, false
	}
	if text[0] >= '0' && text[0] <= '9' {
		return parseSeconds(text)
	}
	at, err := http.ParseTime(text)
	if err != nil {
		return 0, false
	}
	return max(time.Until(at), 0), true
}

// parseSeconds saturates.
func parseSeconds(text string) (time.Duration, bool) {
	const most = int64(longest / time.Second)
	var seconds int64
	for _, c := range []byte(text) {
		if c < '0' || c > '9' {
			return 0, false
		}
		if seconds <= most {
			seconds = 10*seconds + int64(c-'0')
		}
	}
	if seconds > most {
		return longest, true
	}
	return time.Duration(seconds) * time.Second, true
}
