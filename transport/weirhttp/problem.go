package weirhttp

import (
	"encoding/json"
	"net/http"
	"strconv"
)

// A Body answers a request that was turned away: it writes the status,
// [Rejection.Status], and whatever it has to say. The headers about limits are
// there already. The program's own is a function with these arguments:
//
//	func(w http.ResponseWriter, r *http.Request, rejection weirhttp.Rejection) {
//		w.WriteHeader(rejection.Status)
//		busyPage.Execute(w, rejection.RetryAfter)
//	}
type Body func(w http.ResponseWriter, r *http.Request, rejection Rejection)

// PlainText answers with a line of text, such as "Too Many Requests".
func PlainText(w http.ResponseWriter, _ *http.Request, rejection Rejection) {
	status := statusOf(rejection)
	writeBody(w, status, "text/plain; charset=utf-8", []byte(textOf(status)+"\n"))
}

// ProblemJSON answers with problem details, RFC 9457. Their type is that of
// draft-ietf-httpapi-ratelimit-headers-11 for a quota that is exceeded where the
// status is 429, for reduced capacity where it is 503, and "about:blank" else. The
// policy that turned the request away is in violated-policies; why, and the error,
// are not in it: they are for the program and not for its clients.
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
		p.ViolatedPolicies = violated(rejection.Policy)
	}
	if rejection.RetryAfter > 0 {
		p.Detail = "Try again in " + retryAfterSeconds(rejection.RetryAfter) + " s."
	}
	text, err := json.Marshal(p)
	if err != nil { // there is nothing in it that could fail
		PlainText(w, nil, rejection)
		return
	}
	writeBody(w, status, "application/problem+json", append(text, '\n'))
}

const problemTypes = "https://iana.org/assignments/http-problem-types#"

// problem is RFC 9457 with the extension of the draft.
type problem struct {
	Type             string   `json:"type"`
	Title            string   `json:"title"`
	Status           int      `json:"status"`
	Detail           string   `json:"detail,omitempty"`
	ViolatedPolicies []string `json:"violated-policies,omitempty"`
}

func violated(policy string) []string {
	if policy == "" {
		return nil
	}
	return []string{policy}
}

// statusOf is the status of a rejection: that of a quota where it says none.
func statusOf(rejection Rejection) int {
	if rejection.Status == 0 {
		return http.StatusTooManyRequests
	}
	return rejection.Status
}

func textOf(status int) string {
	if text := http.StatusText(status); text != "" {
		return text
	}
	return "status " + strconv.Itoa(status)
}

// writeBody leaves it to the server to send none where the request is a HEAD.
func writeBody(w http.ResponseWriter, status int, contentType string, body []byte) {
	h := w.Header()
	// What a handler in front may have said about another body.
	h.Del("Content-Encoding")
	h.Del("Etag")
	h.Del("Last-Modified")
	h.Set("Content-Type", contentType)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	_, _ = w.Write(body) // nobody is left to be told
}
