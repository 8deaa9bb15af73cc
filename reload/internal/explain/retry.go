package explain

import (
	"cmp"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/weir-go/weir/reload/internal/model"
	"github.com/weir-go/weir/strategies/retry"
)

// explainRetry describes a retry, without its budget.
func explainRetry(o model.RetryOptions) string {
	full := retry.New(&o.Options).Options() // with the defaults
	var b strings.Builder
	switch {
	case full.MaxRetries <= 0:
		return "is not retried"
	case full.MaxRetries == retry.Forever:
		b.WriteString("is retried until it succeeds")
	case full.MaxRetries == 1:
		b.WriteString("is retried once")
	default:
		fmt.Fprintf(&b, "is retried up to %d times", full.MaxRetries)
	}
	if o.Handle != "" {
		fmt.Fprintf(&b, " if %s says so", o.Handle)
	}
	b.WriteString(explainWaits(full))
	if full.MaxDuration > 0 {
		fmt.Fprintf(&b, ", for %s at most", briefly(full.MaxDuration))
	}
	switch {
	case full.IgnoreRetryAfter:
		b.WriteString(", whatever a failure asks for")
	case full.MaxRetryAfter < 0:
		b.WriteString(", or as long as a failure asks for")
	case full.MaxRetryAfter != retry.DefaultMaxRetryAfter:
		fmt.Fprintf(&b, ", or up to %s if a failure asks for it", briefly(full.MaxRetryAfter))
	}
	return b.String()
}

func explainWaits(o retry.Options) string {
	if o.Delay <= 0 {
		return ", at once"
	}
	words := ", after " + explainBackoff(o)
	switch {
	case o.Jitter && o.Backoff == retry.Exponential:
		words += " (full jitter: a random part of that)"
	case o.Jitter:
		words += " (jitter: up to a quarter more or less)"
	}
	return words
}

// explainBackoff lists the first waits, up to the one from which they stay the same.
func explainBackoff(o retry.Options) string {
	const most = 3
	var waits []string
	for attempt := range min(o.MaxRetries, most) {
		d := wait(o, attempt)
		if d == wait(o, attempt+1) && o.MaxRetries > attempt+1 {
			return strings.Join(append(waits, briefly(d)+" each"), ", then ")
		}
		waits = append(waits, briefly(d))
	}
	words := strings.Join(waits, ", ")
	if o.MaxRetries > most {
		words += " and so on"
		if o.MaxDelay > 0 {
			words += ", up to " + briefly(o.MaxDelay)
		}
	}
	return words
}

// wait returns the backoff after that attempt, counted from 0, without jitter.
func wait(o retry.Options, attempt int) time.Duration {
	factor := map[retry.Backoff]time.Duration{
		retry.Linear:      time.Duration(attempt + 1),
		retry.Exponential: 1 << attempt,
	}[o.Backoff]
	factor = cmp.Or(factor, 1)
	d := time.Duration(math.MaxInt64)
	if o.Delay <= d/factor {
		d = o.Delay * factor
	}
	if o.MaxDelay > 0 {
		d = min(d, o.MaxDelay)
	}
	return d
}
