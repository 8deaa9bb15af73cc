package admission

import (
	"math"
	"strconv"
	"time"

	"github.com/weir-go/weir/transport/internal/status"
)

// maxInteger is the largest integer that a structured field can have.
const maxInteger = 999_999_999_999_999

// Draft11 returns the lines of RateLimit-Policy and RateLimit of draft-ietf-httpapi-ratelimit-headers-11. reset, in
// seconds, is left out if it is 0.
func (q Quota) Draft11(reset int64) (policy, limit string) {
	text := make([]byte, 0, 128)
	text = appendString(text, q.Policy)
	name := len(text)
	text = appendParameter(text, ";q=", q.Permits)
	if q.Window > 0 {
		text = appendParameter(text, ";w=", status.WholeSeconds(q.Window))
	}
	end := len(text)
	text = append(text, text[:name]...)
	text = appendParameter(text, ";r=", q.Remaining)
	if reset > 0 {
		text = appendParameter(text, ";t=", reset)
	}
	lines := string(text) // one allocation for both
	return lines[:end], lines[end:]
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

// LegacyReset returns the Unix time of the reset in seconds, rounded up.
func (q Quota) LegacyReset() int64 {
	reset := time.Now().Add(min(q.Reset, math.MaxInt64-time.Second))
	seconds := reset.Unix()
	if reset.Nanosecond() > 0 {
		seconds++ // as status.WholeSeconds
	}
	return seconds
}
