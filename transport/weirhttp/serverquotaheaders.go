package weirhttp

import (
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/weir-go/weir/internal/textenum"
)

// Headers selects the header fields that tell a client how much of its quota is left, in answers to admitted and to
// rejected requests. Retry-After does not depend on it: a rejection has it whenever it is known. In configuration files
// it is "none", "legacy" or "draft-11".
type Headers uint8

const (
	// NoHeaders sends none. It is the zero value.
	NoHeaders Headers = iota
	// Legacy sends X-RateLimit-Limit, X-RateLimit-Remaining and X-RateLimit-Reset. No
	// standard defines them; here Reset is a Unix time in seconds, as in the APIs that
	// made them known. If the route has several policies, the fields describe the
	// policy with the fewest remaining permits.
	Legacy
	// Draft11 sends RateLimit-Policy and RateLimit, one line for each policy, in the
	// form of draft-ietf-httpapi-ratelimit-headers-11. The next draft can differ.
	Draft11
)

var headersTexts = textenum.Texts[Headers]{Package: "weirhttp", Type: "Headers", Texts: []string{
	NoHeaders: "none", Legacy: "legacy", Draft11: "draft-11",
}}

// String returns the text form, or Headers(n) for any other number.
func (k Headers) String() string { return headersTexts.String(k) }

// MarshalText implements [encoding.TextMarshaler].
func (k Headers) MarshalText() ([]byte, error) { return headersTexts.Marshal(k) }

// UnmarshalText implements [encoding.TextUnmarshaler].
func (k *Headers) UnmarshalText(text []byte) error { return headersTexts.Unmarshal(k, text) }

// The names of the fields in the form of [http.CanonicalHeaderKey], so that a map access can replace Set, which
// computes that form each time.
const (
	retryAfterField      = "Retry-After"
	policyField          = "Ratelimit-Policy"
	limitField           = "Ratelimit"
	legacyLimitField     = "X-Ratelimit-Limit"
	legacyRemainingField = "X-Ratelimit-Remaining"
	legacyResetField     = "X-Ratelimit-Reset"
)

// A quota is what one policy tells a client.
type quota struct {
	policy    string
	permits   int64         // what a window has, or a bucket holds
	window    time.Duration // 0: there is none, as for a concurrency limit
	remaining int64
	reset     time.Duration // until there is more; 0: not known
}

// writeRetryAfter sets Retry-After to d, unless d is 0, which means not known, or h has a later Retry-After. It is
// called before the quotas of the route are written. If h already has RateLimit lines, from a handler further out,
// writeRetryAfter keeps the rule of quota.write for those lines, too.
func writeRetryAfter(h http.Header, d time.Duration) {
	if d <= 0 {
		return
	}
	seconds := alignResets(h[limitField], wholeSeconds(d))
	if set, ok := retryAfterIn(h); ok && set >= seconds {
		return
	}
	setNumber(h, retryAfterField, seconds)
}

// alignResets applies the rule of quota.write to RateLimit lines, which writeDraft11 has made, and to a Retry-After of
// that many seconds. It returns the new Retry-After, which is at least the t of every exhausted policy, and removes
// every t that is later than that.
func alignResets(lines []string, seconds int64) int64 {
	for _, line := range lines {
		if _, t, exhausted := resetIn(line); exhausted {
			seconds = max(seconds, t)
		}
	}
	for i, line := range lines {
		if end, t, _ := resetIn(line); t > seconds {
			lines[i] = line[:end]
		}
	}
	return seconds
}

// resetIn returns the t of a RateLimit line, which is its reset in seconds, and the position of t. If the line has no t,
// t is 0. exhausted reports whether nothing remains.
func resetIn(line string) (at int, t int64, exhausted bool) {
	parameters := line[strings.LastIndexByte(line, '"')+1:]
	before, text, found := strings.Cut(parameters, ";t=")
	if !found || !strings.HasPrefix(before, ";r=") {
		return 0, 0, false
	}
	t, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 0, 0, false
	}
	return len(line) - len(";t=") - len(text), t, before == ";r=0"
}

// retryAfterIn returns the seconds that writeRetryAfter has set.
func retryAfterIn(h http.Header) (seconds int64, ok bool) {
	lines := h[retryAfterField]
	if len(lines) == 0 {
		return 0, false
	}
	seconds, err := strconv.ParseInt(lines[0], 10, 64)
	return seconds, err == nil
}

// wholeSeconds returns d in seconds, rounded up: a client that comes too early is rejected again.
func wholeSeconds(d time.Duration) int64 {
	if d <= 0 {
		return 0
	}
	return int64((d-1)/time.Second) + 1
}

// write adds the fields of one policy. It is called once for each policy, after writeRetryAfter.
//
// Rule: Retry-After is never earlier than the t of a RateLimit line, which is the reset in seconds. If it would be, and
// the policy is exhausted, Retry-After moves to t. If the policy is not exhausted, the line has no t instead, because a
// client need not wait until there is even more.
func (q quota) write(h http.Header, kind Headers) {
	q.permits, q.remaining = max(q.permits, 0), max(q.remaining, 0)
	switch kind {
	case Legacy:
		q.writeLegacy(h)
	case Draft11:
		q.writeDraft11(h)
	}
}

// maxInteger is the largest integer that a structured field can have.
const maxInteger = 999_999_999_999_999

func (q quota) writeDraft11(h http.Header) {
	reset := wholeSeconds(q.reset)
	if retryAfter, ok := retryAfterIn(h); ok && retryAfter < reset {
		if q.remaining == 0 {
			writeRetryAfter(h, q.reset)
		} else {
			reset = 0
		}
	}
	text := make([]byte, 0, 128)
	text = appendString(text, q.policy)
	name := len(text)
	text = appendParameter(text, ";q=", q.permits)
	if q.window > 0 {
		text = appendParameter(text, ";w=", wholeSeconds(q.window))
	}
	end := len(text)
	text = append(text, text[:name]...)
	text = appendParameter(text, ";r=", q.remaining)
	if reset > 0 {
		text = appendParameter(text, ";t=", reset)
	}
	lines := string(text) // one allocation for both
	h[policyField] = append(h[policyField], lines[:end])
	h[limitField] = append(h[limitField], lines[end:])
}

// appendParameter appends a parameter of a structured field.
func appendParameter(text []byte, name string, value int64) []byte {
	text = append(text, name...)
	return strconv.AppendInt(text, min(value, maxInteger), 10)
}

// appendString appends s as a string of RFC 9651: in quotes, with quotes and backslashes escaped. Such a string is
// printable ASCII; every other character becomes "?".
func appendString(text []byte, s string) []byte {
	text = append(text, '"')
	for _, c := range s {
		switch {
		case c == '"' || c == '\\':
			text = append(text, '\\', byte(c))
		case c < ' ' || c > '~':
			text = append(text, '?')
		default:
			text = append(text, byte(c))
		}
	}
	return append(text, '"')
}

// writeLegacy describes the policy, unless the fields already describe one with less remaining.
func (q quota) writeLegacy(h http.Header) {
	if lines := h[legacyRemainingField]; len(lines) > 0 {
		if remaining, err := strconv.ParseInt(lines[0], 10, 64); err == nil && remaining <= q.remaining {
			return
		}
	}
	setNumber(h, legacyLimitField, q.permits)
	setNumber(h, legacyRemainingField, q.remaining)
	delete(h, legacyResetField)
	if q.reset > 0 {
		reset := time.Now().Add(min(q.reset, math.MaxInt64-time.Second))
		seconds := reset.Unix()
		if reset.Nanosecond() > 0 {
			seconds++ // rounded up, as wholeSeconds is
		}
		setNumber(h, legacyResetField, seconds)
	}
}

func setNumber(h http.Header, field string, n int64) {
	h[field] = []string{strconv.FormatInt(n, 10)}
}
