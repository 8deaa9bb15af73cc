package weirhttp

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/transport/internal/admission"
	"github.com/weir-go/weir/transport/weirhttp/internal/handlerio"
)

// A Rejection describes a request that is not admitted.
type Rejection struct {
	Policy     string        // the name of the policy
	Lease      limiter.Lease // the limiter's answer; the zero Lease if Err has the cause
	RetryAfter time.Duration // 0: not known
	Status     int           // the status of the answer
	// Err is nil if a limiter rejected the request. Else it is the limiter's error,
	// the pipeline's, or a [*TimeoutError].
	Err error
}

// StatusClientClosedRequest is the status of a request whose client has gone while the request waited. Only the log
// sees it. No RFC defines it, but many servers use it.
const StatusClientClosedRequest = 499

// statusFor returns the status of a request that the policy does not admit.
func (p *preparedPolicy) statusFor(ctx context.Context, refusal *admission.Refusal) int {
	switch refusal.Cause {
	case admission.Ended:
		return statusOfContext(ctx)
	case admission.Ambiguous:
		return http.StatusBadRequest
	case admission.Mistake:
		return http.StatusInternalServerError
	case admission.Undecided:
		return http.StatusServiceUnavailable
	}
	switch {
	case p.options.Status != 0:
		return p.options.Status
	case refusal.Cause == admission.OverQuota:
		return http.StatusTooManyRequests
	default:
		return http.StatusServiceUnavailable
	}
}

// statusOfContext returns 503 if ctx has passed its deadline, and 499 if it ended because the client has gone.
func statusOfContext(ctx context.Context) int {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return http.StatusServiceUnavailable
	}
	return StatusClientClosedRequest
}

// reject answers with onRejected, and with body if onRejected is nil or writes nothing.
func reject(w http.ResponseWriter, r *http.Request, onRejected, body Body, rejection Rejection) {
	switch {
	case IsGRPC(r):
		body = GRPC
	case body == nil:
		body = PlainText
	}
	if rejection.Status == StatusClientClosedRequest {
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
type Body func(w http.ResponseWriter, r *http.Request, rejection Rejection)

// PlainText is a [Body] of one line of text, such as "Too Many Requests". It answers a call of gRPC by [GRPC].
func PlainText(w http.ResponseWriter, r *http.Request, rejection Rejection) {
	if IsGRPC(r) {
		GRPC(w, r, rejection)
		return
	}
	status := statusToSend(rejection)
	writeBody(w, status, "text/plain; charset=utf-8", []byte(statusText(status)+"\n"))
}

// ProblemJSON is a [Body] of problem details, RFC 9457. Their type is one of draft-ietf-httpapi-ratelimit-headers-11:
// an exceeded quota if the status is 429, reduced capacity if it is 503; else it is "about:blank". The policy that
// rejected the request is in violated-policies. The reason and the error are left out: they are for the program, not
// for its clients. It answers a call of gRPC by [GRPC].
func ProblemJSON(w http.ResponseWriter, r *http.Request, rejection Rejection) {
	if IsGRPC(r) {
		GRPC(w, r, rejection)
		return
	}
	status := statusToSend(rejection)
	p := problem{Type: "about:blank", Title: statusText(status), Status: status}
	switch status {
	case http.StatusTooManyRequests:
		p.Type, p.Title = problemTypes+"quota-exceeded", "The quota of requests is exceeded."
	case http.StatusServiceUnavailable:
		p.Type, p.Title = problemTypes+"temporary-reduced-capacity", "The capacity is reduced for the time being."
	}
	if p.Type != "about:blank" && rejection.Policy != "" {
		p.ViolatedPolicies = []string{rejection.Policy}
	}
	if rejection.RetryAfter > 0 {
		p.Detail = "Try again in " + strconv.FormatInt(admission.WholeSeconds(rejection.RetryAfter), 10) + " s."
	}
	text, err := json.Marshal(p)
	if err != nil { // cannot happen with these types
		PlainText(w, nil, rejection)
		return
	}
	writeBody(w, status, "application/problem+json", append(text, '\n'))
}

const problemTypes = "https://iana.org/assignments/http-problem-types#"

// A problem is RFC 9457 with the extension of the draft.
type problem struct {
	Type             string   `json:"type"`
	Title            string   `json:"title"`
	Status           int      `json:"status"`
	Detail           string   `json:"detail,omitempty"`
	ViolatedPolicies []string `json:"violated-policies,omitempty"`
}

// statusToSend returns the status of the rejection, 429 if it has none.
func statusToSend(rejection Rejection) int {
	if rejection.Status == 0 {
		return http.StatusTooManyRequests
	}
	return rejection.Status
}

// statusText returns a text for any status.
func statusText(status int) string {
	if text := http.StatusText(status); text != "" {
		return text
	}
	return "status " + strconv.Itoa(status)
}

// writeBody writes an answer. The server leaves out the body if the request is a HEAD.
func writeBody(w http.ResponseWriter, status int, contentType string, body []byte) {
	h := w.Header()
	// Fields that a handler further out may have set for another body.
	h.Del("Content-Encoding")
	h.Del("Etag")
	h.Del("Last-Modified")
	h.Set("Content-Type", contentType)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	_, _ = w.Write(body) // if this fails, the client cannot be told
}
