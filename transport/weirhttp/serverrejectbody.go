package weirhttp

import (
	"encoding/json"
	"net/http"
	"strconv"
)

// A Body answers a rejected request: it writes the status, [Rejection.Status], and a body. Retry-After and the quota
// headers are set already. A program can have its own:
//
//	func(w http.ResponseWriter, r *http.Request, rejection weirhttp.Rejection) {
//		w.WriteHeader(rejection.Status)
//		busyPage.Execute(w, rejection.RetryAfter)
//	}
type Body func(w http.ResponseWriter, r *http.Request, rejection Rejection)

// PlainText is a [Body] of one line of text, such as "Too Many Requests".
func PlainText(w http.ResponseWriter, _ *http.Request, rejection Rejection) {
	status := statusOf(rejection)
	writeBody(w, status, "text/plain; charset=utf-8", []byte(textOf(status)+"\n"))
}

// ProblemJSON is a [Body] of problem details, RFC 9457. Their type is one of draft-ietf-httpapi-ratelimit-headers-11:
// an exceeded quota if the status is 429, reduced capacity if it is 503; else it is "about:blank". The policy that
// rejected the request is in violated-policies. The reason and the error are left out: they are for the program, not
// for its clients.
func ProblemJSON(w http.ResponseWriter, _ *http.Request, rejection Rejection) {
	status := statusOf(rejection)
	p := problem{Type: "about:blank", Title: textOf(status), Status: status}
	switch status {
	case http.StatusTooManyRequests:
		p.Type = problemTypes + "quota-exceeded"
		p.Title = "The quota of requests is exceeded."
	case http.StatusServiceUnavailable:
		p.Type = problemTypes + "temporary-reduced-capacity"
		p.Title = "The capacity is reduced for the time being."
	}
	if p.Type != "about:blank" {
		if rejection.Policy != "" {
			p.ViolatedPolicies = []string{rejection.Policy}
		}
	}
	if rejection.RetryAfter > 0 {
		p.Detail = "Try again in " + strconv.FormatInt(wholeSeconds(rejection.RetryAfter), 10) + " s."
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

// statusOf returns the status of the rejection, 429 if it has none.
func statusOf(rejection Rejection) int {
	if rejection.Status == 0 {
		return http.StatusTooManyRequests
	}
	return rejection.Status
}

// textOf returns a text for any status.
func textOf(status int) string {
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
	_, _ = w.Write(body) // the client has gone
}
