package weirhttp

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/transport/internal/status"
	"github.com/weir-go/weir/transport/weirhttp/internal/handlerio"
)

// A Rejection describes a request that is not admitted, or has no answer of its handler in time.
type Rejection struct {
	Policy     string        // the name of the policy
	Lease      limiter.Lease // the limiter's answer; the zero Lease if Err has the cause
	RetryAfter time.Duration // 0: not known
	Status     int           // the status of the answer
	// Err is nil if a limiter rejected the request. Else it is the limiter's error,
	// the pipeline's, or the [*timeout.Error] of a [Policy.Timeout].
	Err error
}

// StatusClientClosedRequest is the status of a request whose client has gone while the request waited. Only the log
// sees it. No RFC defines it, but many servers use it.
const StatusClientClosedRequest = status.ClientClosedRequest

// StatusOf returns the status of the answer to a request with ctx whose pipeline has ended with err: 429 for a rate limit
// that says when to come back and for a cost above what a limiter can ever grant, 503 for other rejections, timeouts, closed
// pipelines and limiters that fail, 499 if the client has gone, 500 for all other errors. [Through] and [ByPipeline] use it.
func StatusOf(ctx context.Context, err error) int { return status.Of(ctx, err).HTTP() }

// Reject answers a request as [Limits] answer a rejected one: with Retry-After if it is known, and with body. It is for handlers
// that reject requests by themselves, such as proxies. If body is nil, it is [PlainText]. Status 0 is 429.
//
// A call of gRPC, which is a POST over HTTP/2 whose Content-Type is application/grpc or begins with it, gets an answer of
// gRPC whatever body is: a client of gRPC takes any other answer for a failure of the network. The status of the answer is
// 200, as gRPC wants it, and its code is RESOURCE_EXHAUSTED for 429, UNAVAILABLE for 503, and DEADLINE_EXCEEDED for 504 and
// if a [Policy.Timeout] or a timeout of a pipeline is over. Clients send a call again that is UNAVAILABLE, so a handler
// must not answer 503 if something may have processed the call, and 502 is UNAVAILABLE only if nothing has: [Rejection.Err] is nil, a rejection of a pipeline, or a
// [*net.OpError] of dialing. Else 502 is UNKNOWN. If the time to wait is known, it is in grpc-retry-pushback-ms, which the
// retries of gRPC honour, and in a google.rpc.RetryInfo of the status. [Measure], and strategies further out, see the status
// of the rejection instead of 200.
func Reject(w http.ResponseWriter, r *http.Request, body Body, rejection Rejection) {
	writeRetryAfter(w.Header(), rejection.RetryAfter)
	reject(w, r, nil, body, rejection)
}

const retryAfterField = "Retry-After"

// writeRetryAfter sets Retry-After, unless d is 0, which means not known.
func writeRetryAfter(h http.Header, d time.Duration) {
	if d > 0 {
		h[retryAfterField] = []string{strconv.FormatInt(status.WholeSeconds(d), 10)}
	}
}

// reject answers with onRejected, and with body if onRejected is nil or writes nothing.
func reject(w http.ResponseWriter, r *http.Request, onRejected, body Body, rejection Rejection) {
	w, r, restore := handlerio.LimitAnswer(w, r)
	defer restore()
	switch {
	case isGRPC(r):
		body = grpcBody
	case body == nil:
		body = PlainText
	}
	if rejection.Status == StatusClientClosedRequest && r != nil && r.Context().Err() != nil { // else a program has chosen the status
		w.WriteHeader(rejection.Status)
		return
	}
	if onRejected != nil {
		own := handlerio.NewResponse(w, nil)
		onRejected(own.Writer(), r, rejection)
		if own.Begun() {
			return
		}
	}
	body(w, r, rejection)
}

// A Body answers a rejected request: it writes the status, [Rejection.Status], and a body. Retry-After and the quota
// headers are set already. A program can have its own:
//
//	func(w http.ResponseWriter, r *http.Request, rejection weirhttp.Rejection) {
//		w.WriteHeader(rejection.Status)
//		busyPage.Execute(w, rejection.RetryAfter)
//	}
//
// Over HTTP/1 it has half a second to read a body of the request, and a second to write, so that a slow client does not keep the
// permits of handlers further out.
type Body func(w http.ResponseWriter, r *http.Request, rejection Rejection)

// PlainText is a [Body] of one line of text, such as "Too Many Requests". It answers a call of gRPC as [Reject] does.
func PlainText(w http.ResponseWriter, r *http.Request, rejection Rejection) {
	writeBody(w, r, rejection, "text/plain; charset=utf-8", []byte(status.Text(statusToSend(rejection))+"\n"))
}

// ProblemJSON is a [Body] of problem details, RFC 9457. Their type is one of draft-ietf-httpapi-ratelimit-headers-11:
// an exceeded quota if the status is 429, reduced capacity if it is 503; else it is "about:blank". The policy that
// rejected the request is in violated-policies. The reason and the error are left out: they are for the program, not
// for its clients. It answers a call of gRPC as [Reject] does.
func ProblemJSON(w http.ResponseWriter, r *http.Request, rejection Rejection) {
	var policies []string
	if rejection.Policy != "" {
		policies = []string{rejection.Policy}
	}
	problem := status.ProblemOf(statusToSend(rejection), policies, rejection.RetryAfter)
	writeBody(w, r, rejection, "application/problem+json", problem.JSON())
}

// statusToSend returns the status of the rejection, 429 if it has none.
func statusToSend(rejection Rejection) int {
	return cmp.Or(rejection.Status, http.StatusTooManyRequests)
}

// removeRepresentation removes the fields that describe another answer, for which a handler further out may have set them.
func removeRepresentation(h http.Header) {
	for _, field := range [...]string{"Content-Encoding", "Content-Length", "Etag", "Last-Modified", "Trailer"} {
		delete(h, field)
	}
}

// writeBody writes an answer. The server leaves out the body if the request is a HEAD.
func writeBody(w http.ResponseWriter, r *http.Request, rejection Rejection, contentType string, body []byte) {
	if isGRPC(r) {
		grpcBody(w, r, rejection)
		return
	}
	h := w.Header()
	removeRepresentation(h)
	h.Set("Content-Type", contentType)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(statusToSend(rejection))
	_, _ = w.Write(body) // if this fails, the client cannot be told
}

// isGRPC reports whether r is a call of gRPC. gRPC-Web is another protocol.
func isGRPC(r *http.Request) bool {
	if r == nil || r.ProtoMajor != 2 || r.Method != http.MethodPost {
		return false
	}
	rest, ok := strings.CutPrefix(r.Header.Get("Content-Type"), "application/grpc")
	return ok && (rest == "" || rest[0] == '+' || rest[0] == ';')
}

// grpcBody answers a call of gRPC; see [Reject].
func grpcBody(w http.ResponseWriter, _ *http.Request, rejection Rejection) {
	meant := statusToSend(rejection)
	code := status.CodeOf(meant, rejection.Err)
	h := w.Header()
	removeRepresentation(h)
	h.Set("Content-Type", "application/grpc")
	h.Set(status.CodeField, strconv.Itoa(int(code)))
	h.Set(status.MessageField, status.Message(code))
	never := code == status.ResourceExhausted && errors.Is(rejection.Err, limiter.ErrPermitCount) // it costs more than the limiter can ever grant
	if pushback := status.Pushback(rejection.RetryAfter, never); pushback != "" {
		h.Set(status.PushbackField, pushback)
	}
	if rejection.RetryAfter > 0 && !never {
		h.Set(status.DetailsField, status.Details(code, status.Message(code), rejection.RetryAfter))
	}
	handlerio.SetEffectiveStatus(w, meant)
	w.WriteHeader(http.StatusOK) // without a body: net/http then sends the header as the trailer, which can be retried
}
