// Package status has the answers to requests that a server does not serve: for each [Cause] a status of HTTP and a code of gRPC, the
// time to wait, and the problem details of RFC 9457.
package status

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/strategies/ratelimit"
)

// A Cause is the reason why a request is not admitted, or has no answer of its handler.
type Cause uint8

// The causes.
const (
	OverQuota    Cause = iota // the client is over its quota
	OverCapacity              // the server is short of capacity
	Undecided                 // the limiter could not decide
	Ambiguous                 // the key of the request has several values
	Gone                      // the client has gone
	Late                      // the deadline of the request has passed, or a strategy has ended its attempt
	TimedOut                  // a timeout of the program is over
	Failed                    // the program has made a mistake
)

// ClientClosedRequest is the status of a request whose client has gone.
const ClientClosedRequest = 499

var answers = [...]struct {
	http int
	grpc uint32
}{
	OverQuota:    {http.StatusTooManyRequests, ResourceExhausted},
	OverCapacity: {http.StatusServiceUnavailable, Unavailable},
	Undecided:    {http.StatusServiceUnavailable, Unavailable},
	Ambiguous:    {http.StatusBadRequest, InvalidArgument},
	Gone:         {ClientClosedRequest, Canceled},
	Late:         {http.StatusServiceUnavailable, DeadlineExceeded},
	TimedOut:     {http.StatusServiceUnavailable, DeadlineExceeded},
	Failed:       {http.StatusInternalServerError, Internal},
}

// HTTP returns the status of the answer.
func (c Cause) HTTP() int { return answers[c].http }

// GRPC returns the code of the answer.
func (c Cause) GRPC() uint32 { return answers[c].grpc }

// Rejected reports whether a limiter has decided, so that a status of the program applies.
func (c Cause) Rejected() bool { return c == OverQuota || c == OverCapacity }

// Ended reports whether the context of the request has ended.
func (c Cause) Ended() bool { return c == Gone || c == Late }

// A ClientKey asks a context for the context that the request came with, which ends when the client has gone.
type ClientKey struct{}

// Of returns the client's context that ctx is made from, or ctx itself if it is the client's.
func (k ClientKey) Of(ctx context.Context) any {
	if client := ctx.Value(k); client != nil {
		return client
	}
	return ctx
}

// OfContext returns the cause of a request whose context has ended.
func OfContext(ctx context.Context) Cause {
	client, _ := ClientKey{}.Of(ctx).(context.Context)
	if ended := ctx.Err(); ended != nil && client.Err() == nil || errors.Is(ended, context.DeadlineExceeded) {
		return Late
	}
	return Gone
}

// OfLease returns the cause of a rejection by a limiter that all clients share. RetryAfter tells quota and capacity apart: permits
// that come back with time are a quota, permits that come back when other requests end are capacity.
func OfLease(rejected limiter.Lease) Cause {
	_, known := rejected.RetryAfter()
	switch reason := rejected.Reason(); {
	case reason == limiter.ReasonUnavailable || reason == limiter.ReasonClosed:
		return Undecided
	case known && reason != limiter.ReasonPartitionLimit:
		return OverQuota
	default:
		return OverCapacity
	}
}

// Of returns the cause of a request with ctx whose pipeline has ended with err.
func Of(ctx context.Context, err error) Cause {
	if limited, ok := errors.AsType[*ratelimit.RejectedError](err); ok {
		return OfLease(limited.Lease)
	}
	switch {
	case errors.Is(err, pipeline.ErrRejected):
		if isTimeout(err) {
			return TimedOut
		}
		return OverCapacity
	case ctx.Err() != nil:
		return OfContext(ctx)
	case errors.Is(err, pipeline.ErrClosed):
		return OverCapacity
	case errors.Is(err, context.DeadlineExceeded):
		return TimedOut
	case pipeline.NotCalled(err) || errors.Is(err, limiter.ErrClosed):
		return OfLimiter(err)
	default:
		return Failed
	}
}

// OfLimiter returns the cause of a request about which a limiter has returned err. If the limiter can never grant that many permits,
// it is not short of capacity for a time.
func OfLimiter(err error) Cause {
	if errors.Is(err, limiter.ErrPermitCount) {
		return OverQuota
	}
	return Undecided
}

// isTimeout reports whether err is a timeout.
func isTimeout(err error) bool {
	timeout, ok := errors.AsType[interface {
		error
		Timeout() bool
	}](err)
	return ok && timeout.Timeout()
}

// codes are the codes of statuses. If a program has chosen another status below 500 for a rejection, the code is ResourceExhausted.
// The code of every other status is Unknown.
var codes = map[int]uint32{
	http.StatusBadRequest:          InvalidArgument,
	http.StatusUnauthorized:        Unauthenticated,
	http.StatusForbidden:           PermissionDenied,
	http.StatusNotFound:            Unimplemented,
	http.StatusMethodNotAllowed:    Unimplemented,
	http.StatusRequestTimeout:      DeadlineExceeded,
	http.StatusTooManyRequests:     ResourceExhausted,
	ClientClosedRequest:            Canceled,
	http.StatusInternalServerError: Internal,
	http.StatusServiceUnavailable:  Unavailable,
	http.StatusGatewayTimeout:      DeadlineExceeded,
}

// CodeOf returns the code of gRPC for an answer with the given status of HTTP. err is the cause, or nil if a limiter has
// rejected the call. Clients send a call again that is Unavailable: 503 says that nothing has processed the call, and 502 says
// nothing about that, so its error decides.
func CodeOf(status int, err error) uint32 {
	code, known := codes[status]
	switch {
	case status == http.StatusServiceUnavailable && isTimeout(err):
		return DeadlineExceeded
	case known:
		return code
	case status == http.StatusBadGateway && !perhapsProcessed(err):
		return Unavailable
	case status < 500 && err == nil:
		return ResourceExhausted
	default:
		return Unknown
	}
}

// perhapsProcessed reports whether a server may have processed a call that ended with err.
func perhapsProcessed(err error) bool {
	if err == nil || errors.Is(err, pipeline.ErrRejected) || errors.Is(err, pipeline.ErrClosed) {
		return false
	}
	op, ok := errors.AsType[*net.OpError](err)
	return !ok || op.Op != "dial"
}

// WholeSeconds returns d in seconds, rounded up, so that a client that waits so long is not too early.
func WholeSeconds(d time.Duration) int64 {
	if d <= 0 {
		return 0
	}
	return int64((d-1)/time.Second) + 1
}

// Text returns a text for any status.
func Text(status int) string {
	if text := http.StatusText(status); text != "" {
		return text
	}
	return "status " + strconv.Itoa(status)
}

// A Problem is RFC 9457 with the extension of draft-ietf-httpapi-ratelimit-headers-11.
type Problem struct {
	Type             string   `json:"type"`
	Title            string   `json:"title"`
	Status           int      `json:"status,omitempty"`
	Detail           string   `json:"detail,omitempty"`
	ViolatedPolicies []string `json:"violated-policies,omitempty"`
}

const problemTypes = "https://iana.org/assignments/http-problem-types#"

// ProblemOf returns the problem of an answer with that status. It names the policies if the status is one of limits.
func ProblemOf(status int, policies []string, retryAfter time.Duration) Problem {
	p := Problem{Type: "about:blank", Title: Text(status), Status: status}
	switch status {
	case http.StatusTooManyRequests:
		p.Type, p.Title, p.ViolatedPolicies = problemTypes+"quota-exceeded", "The quota of requests is exceeded.", policies
	case http.StatusServiceUnavailable:
		p.Type, p.Title, p.ViolatedPolicies = problemTypes+"temporary-reduced-capacity", "The capacity is reduced for the time being.", policies
	}
	if retryAfter > 0 {
		p.Detail = "Try again in " + strconv.FormatInt(WholeSeconds(retryAfter), 10) + " s."
	}
	return p
}

// JSON returns the body.
func (p Problem) JSON() []byte {
	text, _ := json.Marshal(p) // cannot fail with these types
	return append(text, '\n')
}
