package retry

import (
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"github.com/weir-go/weir/internal/saturate"
)

// Backoff says how waits grow from one retry to the next. It is written
// "constant", "linear" or "exponential" in configuration files.
type Backoff uint8

// The kinds of backoff, for a Delay of d.
const (
	Constant    Backoff = iota // d, d, d, d; the zero value
	Linear                     // d, 2d, 3d, 4d
	Exponential                // d, 2d, 4d, 8d
)

var backoffs = [...]string{Constant: "constant", Linear: "linear", Exponential: "exponential"}

// String returns the text form, or Backoff(n) for what is none.
func (b Backoff) String() string {
	if int(b) < len(backoffs) {
		return backoffs[b]
	}
	return fmt.Sprintf("Backoff(%d)", uint8(b))
}

// MarshalText implements [encoding.TextMarshaler].
func (b Backoff) MarshalText() ([]byte, error) {
	if int(b) >= len(backoffs) {
		return nil, fmt.Errorf("retry: %v is no backoff", b)
	}
	return []byte(backoffs[b]), nil
}

// UnmarshalText implements [encoding.TextUnmarshaler].
func (b *Backoff) UnmarshalText(text []byte) error {
	for backoff, name := range backoffs {
		if name == string(text) {
			*b = Backoff(backoff)
			return nil
		}
	}
	return fmt.Errorf("retry: backoff %q must be %q, %q or %q", text, Constant, Linear, Exponential)
}

// longest is what durations saturate at.
const longest = time.Duration(math.MaxInt64)

// delay returns the backoff after the given attempt without jitter or a cap. It
// saturates.
func (b Backoff) delay(base time.Duration, attempt int) time.Duration {
	if base <= 0 {
		return 0
	}
	switch b {
	case Linear:
		if int64(attempt) >= int64(longest/base) {
			return longest
		}
		return base * (time.Duration(attempt) + 1)
	case Exponential:
		if attempt >= 63 || base > longest>>attempt {
			return longest
		}
		return base << attempt
	default:
		return base
	}
}

// spread returns d with jitter; see the package comment.
func (b Backoff) spread(d time.Duration) time.Duration {
	if b == Exponential {
		return upTo(d)
	}
	return saturate.Add(d-d/4, upTo(d/2))
}

// upTo returns a random duration from 0 to d.
func upTo(d time.Duration) time.Duration {
	if d <= 0 {
		return 0
	}
	if d == longest {
		d-- // d+1 below
	}
	return rand.N(d + 1)
}
