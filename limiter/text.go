package limiter

import (
	"fmt"
	"strings"

	"github.com/weir-go/weir/internal/durationtext"
)

// String returns "granted 3 permits", or "rejected" with the limiter of a chain, the reason and the time to retry after,
// where those are known: "rejected by limiter slots of the chain: queue limit reached, retry after 941ms".
func (l Lease) String() string {
	if l.Acquired() {
		if l.n == 1 {
			return "granted 1 permit"
		}
		return fmt.Sprintf("granted %d permits", l.n)
	}
	var text strings.Builder
	text.WriteString("rejected")
	if name, ok := ChainMemberKey.From(l); ok {
		text.WriteString(" by " + memberText(name))
	}
	if reason := l.Reason(); reason != "" {
		text.WriteString(": " + reason)
	}
	if d, ok := l.RetryAfter(); ok {
		text.WriteString(", " + durationtext.Wait(d))
	}
	return text.String()
}

// MarshalText implements [encoding.TextMarshaler] with [Lease.String]: encoding/json writes that text for a Lease
// inside another value, such as a rejection in a log line. There is no UnmarshalText.
func (l Lease) MarshalText() ([]byte, error) { return []byte(l.String()), nil }

// String returns the figures, such as "5 available, 0 queued, 12 granted, 1 rejected".
func (s Statistics) String() string {
	lastKnown := ""
	if s.LastKnown {
		lastKnown = " as last known"
	}
	return fmt.Sprintf("%d available%s, %d queued, %d granted, %d rejected",
		s.AvailablePermits, lastKnown, s.QueuedPermits, s.SuccessfulLeases, s.FailedLeases)
}
