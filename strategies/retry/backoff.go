package retry

import (
	"context"
	"time"

	"github.com/weir-go/weir/internal/deterministic"
	"github.com/weir-go/weir/internal/saturate"
	"github.com/weir-go/weir/internal/textenum"
)

// A Backoff says how the waits grow from one retry to the next. Its text form is "constant", "linear" or "exponential".
type Backoff uint8

// The kinds of backoff, with their waits for a Delay of d. The zero value is Constant.
const (
	Constant    Backoff = iota // d, d, d, d
	Linear                     // d, 2d, 3d, 4d
	Exponential                // d, 2d, 4d, 8d
)

var backoffs = textenum.Texts[Backoff]{Package: "retry", Type: "Backoff", Texts: []string{
	Constant: "constant", Linear: "linear", Exponential: "exponential",
}}

// String returns the text form, or Backoff(n) for any other number.
func (b Backoff) String() string { return backoffs.String(b) }

// MarshalText implements [encoding.TextMarshaler].
func (b Backoff) MarshalText() ([]byte, error) { return backoffs.Marshal(b) }

// UnmarshalText implements [encoding.TextUnmarshaler].
func (b *Backoff) UnmarshalText(text []byte) error { return backoffs.Unmarshal(b, text) }

// Delay returns the wait after the given attempt, 0 for the first, without jitter and without MaxDelay. base is [Options.Delay].
func (b Backoff) Delay(base time.Duration, attempt int) time.Duration {
	base = max(base, 0) // -1 is no backoff
	switch b {
	case Linear:
		return saturate.Mul(base, saturate.Add(time.Duration(attempt), 1))
	case Exponential:
		return saturate.Mul(base, 1<<min(attempt, 62))
	default:
		return base
	}
}

// spread returns d with jitter, see the package comment.
func (b Backoff) spread(ctx context.Context, d time.Duration) time.Duration {
	if b == Exponential {
		return upTo(ctx, d)
	}
	return saturate.Add(d-d/4, upTo(ctx, d/2))
}

// upTo returns a random duration from 0 to d.
func upTo(ctx context.Context, d time.Duration) time.Duration {
	if d <= 0 {
		return 0
	}
	return deterministic.UpTo(ctx, saturate.Add(d, 1))
}
