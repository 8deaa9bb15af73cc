package weirhttp

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math"
	"net/http"
	"slices"
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
	asks       bool     // retryAfter is known
	attempt    *attempt // nil: the program made the error
}

// Error says which host answered what to which method; not the path, which may
// have something in it that is not for a log.
func (e *StatusError) Error() string {
	request := "a request"
	r := e.Response.Request
	if e.attempt != nil { // the caller's may have been reused
		r = &e.attempt.request
	}
	if r != nil && r.URL != nil {
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

// Retryable reports whether the request may be sent again.
func (e *StatusError) Retryable() bool { return e.attempt != nil && e.attempt.exchange.repeatable }

func (e *StatusError) isOf(x *exchange) bool { return e.attempt != nil && e.attempt.exchange == x }

// finalError is the error of an attempt that no other is to follow.
type finalError struct{ error }

func (e *finalError) Unwrap() error   { return e.error }
func (e *finalError) Retryable() bool { return false }

// Retryable reports whether the outcome of an attempt is worth another one. It is meant
// for the Handle of a retry's options: a retry does not wait for requests that the
// [RoundTripper] would not send again. It returns false for
//
//   - no error;
//   - requests that are not repeated, see [TransportOptions.Idempotent], and those whose
//     GetBody fails;
//   - attempts that ended after the request's own context: the caller's deadline or
//     cancellation, [http.Client.Timeout], [http.Request.Cancel];
//   - errors that are [context.Canceled], as for the strategies;
//   - what cannot succeed later: a certificate or host name that is not trusted, a server that
//     does not speak TLS, a URL without a host or with a scheme that the transport does
//     not know, an invalid method or header, too many redirects.
//
// It returns true for all other errors. So a timeout of the network, such as a dialer's or
// [http.Transport.ResponseHeaderTimeout], is worth another attempt although it is a
// [context.DeadlineExceeded]: whether the caller's time has run out is decided by the
// caller's context, which a retry checks itself.
func Retryable(_ any, err error) bool {
	if timedOut, ok := errors.AsType[*timeout.Error](err); ok {
		retryable, says := saysRetryable(timedOut.Err) // not unwrapped
		return retryable || !says
	}
	if err == nil || permanent(err) {
		return false
	}
	if retryable, says := saysRetryable(err); says {
		return retryable
	}
	return !errors.Is(err, context.Canceled)
}

func saysRetryable(err error) (retryable, says bool) {
	e, ok := errors.AsType[interface {
		error
		Retryable() bool
	}](err)
	return ok && e.Retryable(), ok
}

// permanentTexts are how net/http's errors begin that come of the request alone. They
// have no types.
var permanentTexts = []string{
	"http: nil Request.URL",
	"http: nil Request.Header",
	"http: no Host in request URL",
	"http: Request.ContentLength=", // with a nil body
	"unsupported protocol scheme",
	"net/http: invalid ", // method, header, trailer
	"stopped after ",     // so many redirects
}

// permanent reports whether another attempt would fail in the same way.
func permanent(err error) bool {
	if errors.Is(err, http.ErrSchemeMismatch) {
		return true
	}
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return true
	}
	if _, ok := errors.AsType[tls.RecordHeaderError](err); ok {
		return true
	}
	for ; err != nil; err = errors.Unwrap(err) {
		text := err.Error()
		if slices.ContainsFunc(permanentTexts, func(begin string) bool { return strings.HasPrefix(text, begin) }) {
			return true
		}
	}
	return false
}

// A refusal is the error of an attempt that was not made, or whose answer the caller no longer takes.
type refusal struct {
	text  string
	later bool // it can be made when those that run have ended
}

func (e *refusal) Error() string { return e.text }

// Is makes it a rejection: it says nothing about the server.
func (e *refusal) Is(target error) bool { return target == pipeline.ErrRejected }

// Retryable reports whether the same attempt can be made later. It stops a retry, and a
// hedge that is made with [Retryable] does not take a refusal for its result while the
// attempt that runs can still succeed.
func (e *refusal) Retryable() bool { return e.later }

// NotCalled returns true: the error says nothing about the server. A circuit breaker or an
// adaptive limiter inside the strategy that made the attempt learns nothing from it.
func (e *refusal) NotCalled() bool { return true }

var (
	errSentBefore    = &refusal{text: "weirhttp: the request has been sent, and must not be sent again"}
	errTooLate       = &refusal{text: "weirhttp: the request has been answered"}
	errAtTheSameTime = &refusal{text: "weirhttp: the request is being sent, and must not be at the same time", later: true}

	errPanicked = errors.New("weirhttp: the attempt panicked")
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
	if d, ok = parseRetryAfter(lines[0], resp.Header["Date"]); !ok {
		return 0, false
	}
	options := &x.transport.options
	d = min(d, options.MaxRetryAfter)
	switch resp.StatusCode {
	case http.StatusTooManyRequests, http.StatusServiceUnavailable:
		if options.PauseOnRetryAfter != nil {
			options.PauseOnRetryAfter.Pause(x.host, d)
		}
	}
	return d, true
}

// parseRetryAfter reads both forms: seconds and a date. A date counts from the Date lines
// of the response, so that the server's clock is compared with itself, and from the local
// clock if there is no valid one. A date in the past is 0.
func parseRetryAfter(text string, date []string) (d time.Duration, ok bool) {
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
	now := time.Now()
	if len(date) > 0 {
		if sent, err := http.ParseTime(date[0]); err == nil {
			now = sent
		}
	}
	return max(at.Sub(now), 0), true
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
