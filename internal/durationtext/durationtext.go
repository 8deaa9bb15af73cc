// Package durationtext writes durations for people.
package durationtext

import (
	"strings"
	"time"
)

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
