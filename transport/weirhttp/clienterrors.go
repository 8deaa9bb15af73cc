package weirhttp

import (
	"crypto/tls"
	"errors"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// A StatusError tells the strategies of a [Transport] that a response counts as a failure. The caller of the Transport
// gets the response instead. There is one exception: if the caller's own context has ended, the caller can get an error
// that is or wraps a StatusError, whose response is closed.
type StatusError struct {
	// Response is the response. A strategy can look at it, and must not close it.
	Response *http.Response

	wait    time.Duration
	asked   bool     // the response asks for the wait
	attempt *attempt // nil: the program made the error
}

// Error returns the method, the host, the status and Retry-After. It leaves out the path, which can have secrets in it.
func (e *StatusError) Error() string {
	request := "a request"
	if e.attempt != nil {
		if r := e.attempt.of.request; r.URL != nil {
			request = r.Method + " " + r.URL.Host
		}
	}
	text := fmt.Sprintf("weirhttp: %s: %d %s", request, e.Response.StatusCode, http.StatusText(e.Response.StatusCode))
	if e.asked {
		text += fmt.Sprintf(", retry after %v", e.wait)
	}
	return text
}

// RetryAfter returns the wait that the response asks for; ok is false if it asks for none. See [pipeline.RetryAfter].
func (e *StatusError) RetryAfter() (d time.Duration, ok bool) { return e.wait, e.asked }

// ErrorType returns the status, which telemetry reports as error.type; see [RequestRecorder] for statuses that are not
// registered.
func (e *StatusError) ErrorType() string { return strconv.Itoa(knownStatus(e.Response.StatusCode)) }

// Retryable reports whether the request may be sent again.
func (e *StatusError) Retryable() bool { return e.attempt != nil && e.attempt.of.Repeat() }

// A finalError says that no other attempt should follow. It is the error of an attempt of a Transport, or errOnce.
type finalError struct{ error }

func (e *finalError) Unwrap() error { return e.error }

// Retryable returns false, which stops a retry with any Handle that respects it: the next attempt would be refused, or
// fail in the same way, and the retry would have waited for nothing.
func (e *finalError) Retryable() bool { return false }

// permanent reports whether the server cannot be trusted, or does not speak TLS, which another attempt would not change.
func permanent(err error) bool {
	_, untrusted := errors.AsType[*tls.CertificateVerificationError](err)
	_, noTLS := errors.AsType[tls.RecordHeaderError](err)
	return untrusted || noTLS || errors.Is(err, http.ErrSchemeMismatch)
}

var (
	errNoResponse  = errors.New("weirhttp: the pipeline returned neither a response nor an error")
	errBaseNothing = errors.New("weirhttp: the base transport returned neither a response nor an error")
	errAnswered    = errors.New("weirhttp: the request has been answered")
)

// retryAfterOf returns the wait that a response asks for, in seconds or until a date. A date counts from the Date of the
// response, so that the server's clock is compared with itself, or from the local clock if there is no valid Date. A date in
// the past is 0.
func retryAfterOf(resp *http.Response) (d time.Duration, ok bool) {
	text := strings.TrimSpace(resp.Header.Get(retryAfterField))
	switch seconds, err := strconv.ParseUint(text, 10, 64); {
	case errors.Is(err, strconv.ErrRange), err == nil && seconds > uint64(math.MaxInt64/time.Second):
		return math.MaxInt64, true
	case err == nil:
		return time.Duration(seconds) * time.Second, true
	}
	at, err := http.ParseTime(text)
	if err != nil {
		return 0, false
	}
	now, err := http.ParseTime(resp.Header.Get("Date"))
	if err != nil {
		now = time.Now()
	}
	return max(at.Sub(now), 0), true
}
