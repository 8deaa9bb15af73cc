package weirhttp

import (
	"math"
	"net/http"
	"strings"
	"time"
)

// forever is the longest duration, for a Retry-After without a limit.
const forever = time.Duration(math.MaxInt64)

// applyRetryAfter returns the wait that the response asks for. If its status is 429 or 503, it pauses the host.
func (x *exchange) applyRetryAfter(resp *http.Response) (d time.Duration, ok bool) {
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

// parseRetryAfter parses both forms, seconds and a date. A date counts from the Date of the response, so that the
// server's clock is compared with itself, or from the local clock if there is no valid Date. A date in the past is 0.
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

// parseSeconds parses a number of seconds. One that is too large becomes forever.
func parseSeconds(text string) (time.Duration, bool) {
	const most = int64(forever / time.Second)
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
		return forever, true
	}
	return time.Duration(seconds) * time.Second, true
}
