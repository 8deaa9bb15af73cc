package weirhttp

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/transport/internal/unsent"
)

// A StatusError tells the strategies of a [Transport] that a response counts as a failure. The caller of the Transport
// gets the response instead. There is one exception: if the caller's own context has ended, the caller can get an error
// that is or wraps a StatusError, whose response is closed.
type StatusError struct {
	// Response is the response. A strategy can look at it, and must not close it.
	Response *http.Response

	retryAfter    time.Duration
	hasRetryAfter bool     // the response asks for a wait
	attempt       *attempt // nil: the program made the error
}

// Error returns the method, the host, the status and Retry-After. It leaves out the path, which can have secrets in it.
func (e *StatusError) Error() string {
	request := "a request"
	r := e.Response.Request
	if e.attempt != nil { // the caller may have reused its request
		r = &e.attempt.request
	}
	if r != nil && r.URL != nil {
		request = r.Method + " " + r.URL.Host
	}
	text := fmt.Sprintf("weirhttp: %s: %d %s", request, e.Response.StatusCode, http.StatusText(e.Response.StatusCode))
	if e.hasRetryAfter {
		text += fmt.Sprintf(", retry after %v", e.retryAfter)
	}
	return text
}

// RetryAfter returns the wait that the response asks for, up to [TransportOptions.MaxRetryAfter]; ok is false if it
// asks for none. See [pipeline.RetryAfter].
func (e *StatusError) RetryAfter() (d time.Duration, ok bool) { return e.retryAfter, e.hasRetryAfter }

// ErrorType returns the status, which telemetry reports as error.type; see [RequestRecorder] for statuses that are not
// registered.
func (e *StatusError) ErrorType() string { return strconv.Itoa(knownStatus(e.Response.StatusCode)) }

// Retryable reports whether the request may be sent again.
func (e *StatusError) Retryable() bool { return e.attempt != nil && e.attempt.exchange.repeatable }

// isOf reports whether the error is about an attempt of x.
func (e *StatusError) isOf(x *exchange) bool { return e.attempt != nil && e.attempt.exchange == x }

// A finalError says that no other attempt should follow. It is the error of an attempt of a Transport, or errOnce.
type finalError struct{ error }

func (e *finalError) Unwrap() error { return e.error }

// Retryable returns false, which stops a retry with any Handle that respects it: the next attempt would be refused, or
// fail in the same way, and the retry would have waited for nothing.
func (e *finalError) Retryable() bool { return false }

// Retryable reports whether another attempt should follow an attempt that ended with err. It is meant for the Handle of
// a retry's options, so that the retry does not wait for requests that the [Transport] would not send again. It returns
// false for
//
//   - no error;
//   - requests that are not sent again, see [TransportOptions.Idempotent], and requests whose GetBody fails;
//   - attempts that ended after the request's own context: the caller's deadline or cancellation,
//     [http.Client.Timeout], [http.Request.Cancel];
//   - errors that match [context.Canceled], which strategies do not retry either;
//   - errors that another attempt would meet, too: a certificate or host name that is not trusted, a server that does not
//     speak TLS, a URL without a host or with an unknown scheme, an invalid method or header, too many redirects.
//
// It returns true for all other errors. So a timeout of the network, such as a dialer's or
// [http.Transport.ResponseHeaderTimeout], is retried although it matches [context.DeadlineExceeded]: the caller's
// context decides whether the caller's time has run out, and a retry checks that itself.
func Retryable(_ any, err error) bool {
	if err == nil || permanent(err) {
		return false
	}
	if retryable, known := pipeline.Retryable(err); known {
		return retryable
	}
	return !errors.Is(err, context.Canceled)
}

// permanentTexts are the beginnings of net/http's errors about the request itself, which have no types.
var permanentTexts = []string{
	"http: nil Request.URL",
	"http: nil Request.Header",
	"http: no Host in request URL",
	"http: Request.ContentLength=", // with a nil body
	"unsupported protocol scheme",
	"net/http: invalid ", // method, header, trailer
	"stopped after ",     // N redirects
}

// permanent reports whether another attempt would fail for the same reason.
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

var (
	errSentBefore    = &unsent.Error{Text: "weirhttp: the request has been sent, and must not be sent again"}
	errTooLate       = &unsent.Error{Text: "weirhttp: the request has been answered"}
	errAtTheSameTime = &unsent.Error{Text: "weirhttp: the request is being sent, and must not be sent twice at the same time", Later: true}

	errNoResponse  = errors.New("weirhttp: the pipeline returned neither a response nor an error")
	errBaseNothing = errors.New("weirhttp: the base transport returned neither a response nor an error")
	errPanicked    = errors.New("weirhttp: the attempt panicked")
)
