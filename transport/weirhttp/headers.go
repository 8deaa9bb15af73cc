package weirhttp

import (
	"fmt"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Headers says which header fields tell a client how much of its quota is left,
// besides Retry-After, which a rejection has whenever it is known. They are sent
// on success, too. It is written "none", "legacy" or "draft-11" in configuration
// files.
type Headers uint8

const (
	// NoHeaders sends none; the zero value.
	NoHeaders Headers = iota
	// Legacy sends X-RateLimit-Limit, X-RateLimit-Remaining and X-RateLimit-Reset.
	// No document says what they mean; here Reset is a Unix time in seconds, as in
	// the programming interfaces that made them known. Of several policies they
	// tell the one with the least remaining.
	Legacy
	// Draft11 sends RateLimit-Policy and RateLimit, one line for each policy, in the
	// form of draft-ietf-httpapi-ratelimit-headers-11. It is a draft: the next
	// one may look different.
	Draft11
)

var headersTexts = [...]string{NoHeaders: "none", Legacy: "legacy", Draft11: "draft-11"}

// String returns the text form, or Headers(n) for what is none.
func (k Headers) String() string {
	if int(k) < len(headersTexts) {
		return headersTexts[k]
	}
	return fmt.Sprintf("Headers(%d)", uint8(k))
}

// MarshalText implements [encoding.TextMarshaler].
func (k Headers) MarshalText() ([]byte, error) {
	if int(k) >= len(headersTexts) {
		return nil, fmt.Errorf("weirhttp: %v is no kind of headers", k)
	}
	return []byte(headersTexts[k]), nil
}

// UnmarshalText implements [encoding.TextUnmarshaler].
func (k *Headers) UnmarshalText(text []byte) error {
	for kind, name := range headersTexts {
		if name == string(text) {
			*k = Headers(kind)
			return nil
		}
	}
	return fmt.Errorf("weirhttp: headers %q must be %q, %q or %q", text, NoHeaders, Legacy, Draft11)
}

// The names of the fields, as [http.CanonicalHeaderKey] writes them: a map access
// instead of a Set spares finding that out every time.
const (
	retryAfterField      = "Retry-After"
	policyField          = "Ratelimit-Policy"
	limitField           = "Ratelimit"
	legacyLimitField     = "X-Ratelimit-Limit"
	legacyRemainingField = "X-Ratelimit-Remaining"
	legacyResetField     = "X-Ratelimit-Reset"
)

// limits is what one policy has to say to a client.
type limits struct {
	policy    string
	quota     int64         // what a window has, or a bucket holds
	window    time.Duration // 0: there is none, as for a concurrency limit
	remaining int64
	reset     time.Duration // until there is more; 0: not known
}

// writeRetryAfter sets Retry-After, if d is known, that is more than 0. It never
// makes one earlier that is there. It comes before writeLimits; with what a handler
// further out has written already it does as writeLimits says.
func writeRetryAfter(h http.Header, d time.Duration) {
	if d <= 0 {
		return
	}
	seconds := agree(h[limitField], wholeSeconds(d))
	if there, ok := retryAfterIn(h); ok && there >= seconds {
		return
	}
	h[retryAfterField] = []string{strconv.FormatInt(seconds, 10)}
}

// agree returns the seconds of a Retry-After that is not earlier than any t in lines
// of writeDraft11, and takes away those that would be later and hold up nobody.
func agree(lines []string, seconds int64) int64 {
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

// resetIn returns the t of a line that writeDraft11 has written, and where it is; 0 if
// there is none.
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

// retryAfterIn returns the seconds that a writeRetryAfter has set.
func retryAfterIn(h http.Header) (seconds int64, ok bool) {
	lines := h[retryAfterField]
	if len(lines) == 0 {
		return 0, false
	}
	seconds, err := strconv.ParseInt(lines[0], 10, 64)
	return seconds, err == nil
}

// retryAfterSeconds is d as Retry-After has it: whole seconds, rounded up, because
// a client that comes too early is rejected again.
func retryAfterSeconds(d time.Duration) string {
	return strconv.FormatInt(wholeSeconds(d), 10)
}

// wholeSeconds rounds up.
func wholeSeconds(d time.Duration) int64 {
	if d <= 0 {
		return 0
	}
	return int64((d-1)/time.Second) + 1
}

// writeLimits adds the fields of one policy. It is called once for each policy that
// applies, after writeRetryAfter.
//
// With both sent, Retry-After is never earlier than what RateLimit says in its t:
// where the policy is exhausted, Retry-After is moved; where it is not, t is left
// out, because that it will have even more later holds up nobody.
func writeLimits(h http.Header, kind Headers, l limits) {
	l.quota, l.remaining = max(l.quota, 0), max(l.remaining, 0)
	switch kind {
	case Legacy:
		writeLegacy(h, l)
	case Draft11:
		writeDraft11(h, l)
	}
}

// longestInteger is the largest that a structured field may have.
const longestInteger = 999_999_999_999_999

func writeDraft11(h http.Header, l limits) {
	reset := wholeSeconds(l.reset)
	if there, ok := retryAfterIn(h); ok && there < reset {
		if l.remaining == 0 {
			writeRetryAfter(h, l.reset)
		} else {
			reset = 0
		}
	}
	text := make([]byte, 0, 128)
	text = appendString(text, l.policy)
	name := len(text)
	text = appendParameter(text, ";q=", l.quota)
	if l.window > 0 {
		text = appendParameter(text, ";w=", wholeSeconds(l.window))
	}
	end := len(text)
	text = append(text, text[:name]...)
	text = appendParameter(text, ";r=", l.remaining)
	if reset > 0 {
		text = appendParameter(text, ";t=", reset)
	}
	lines := string(text) // one allocation for both
	addLine(h, policyField, lines[:end])
	addLine(h, limitField, lines[end:])
}

func appendParameter(text []byte, name string, value int64) []byte {
	text = append(text, name...)
	return strconv.AppendInt(text, min(value, longestInteger), 10)
}

// appendString writes s as a string of RFC 9651: in quotes, with quotes and
// backslashes escaped. Those strings are ASCII; of what else there may be in a
// name of a policy a "?" is left.
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

func addLine(h http.Header, field, line string) {
	h[field] = append(h[field], line)
}

// writeLegacy leaves what is there from a policy that has less remaining.
func writeLegacy(h http.Header, l limits) {
	if there := h[legacyRemainingField]; len(there) > 0 {
		if remaining, err := strconv.ParseInt(there[0], 10, 64); err == nil && remaining <= l.remaining {
			return
		}
	}
	setNumber(h, legacyLimitField, l.quota)
	setNumber(h, legacyRemainingField, l.remaining)
	delete(h, legacyResetField)
	if l.reset > 0 {
		now := time.Now()
		reset := now.Add(min(l.reset, math.MaxInt64-time.Second))
		seconds := reset.Unix()
		if reset.Nanosecond() > 0 {
			seconds++ // a client that comes too early is rejected again
		}
		setNumber(h, legacyResetField, seconds)
	}
}

func setNumber(h http.Header, field string, n int64) {
	h[field] = []string{strconv.FormatInt(n, 10)}
}
