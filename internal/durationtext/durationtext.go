// Package durationtext writes durations for people.
package durationtext

import (
	"strings"
	"time"
)

// Wait returns "retry after 1.5s" for a text that people read: rounded up to a millisecond, and above 10 seconds to a
// second.
func Wait(d time.Duration) string {
	unit := time.Millisecond
	if d > 10*time.Second {
		unit = time.Second
	}
	rounded := d.Round(unit)
	if rounded < d {
		rounded += unit
	}
	return "retry after " + rounded.String()
}

// Of returns the String of a duration without units that are 0 at its end: 1m, not 1m0s.
func Of(d time.Duration) string {
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}
