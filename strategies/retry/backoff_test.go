package retry

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const longest = time.Duration(math.MaxInt64)

func TestBackoff_Delay(t *testing.T) {
	const s = time.Second
	for backoff, want := range map[Backoff][]time.Duration{
		Constant:    {s, s, s, s, s},
		Linear:      {s, 2 * s, 3 * s, 4 * s, 5 * s},
		Exponential: {s, 2 * s, 4 * s, 8 * s, 16 * s},
	} {
		for attempt, d := range want {
			assert.Equal(t, d, backoff.Delay(s, attempt), "%v %d", backoff, attempt)
		}
		assert.Zero(t, backoff.Delay(0, 7))
	}
}

func TestBackoff_DelaySaturates(t *testing.T) {
	for _, backoff := range []Backoff{Constant, Linear, Exponential} {
		for _, base := range []time.Duration{1, 3, time.Second, longest / 2, longest - 1, longest} {
			last := time.Duration(0)
			for _, attempt := range []int{0, 1, 2, 30, 31, 33, 61, 62, 63, 64, 65, 10000, Forever / 2, Forever - 1, Forever} {
				d := backoff.Delay(base, attempt)
				assert.GreaterOrEqual(t, d, last, "%v of %v shrinks at %d", backoff, base, attempt)
				last = d
				for range 3 {
					jittered := backoff.spread(t.Context(), d)
					assert.GreaterOrEqual(t, jittered, time.Duration(0))
				}
			}
		}
	}
	assert.Equal(t, longest, Exponential.Delay(time.Second, 10000))
	assert.Equal(t, time.Duration(1)<<62, Exponential.Delay(1, 62))
	assert.Equal(t, time.Duration(1)<<62, Exponential.Delay(1, 63))
}

func TestBackoff_Spread(t *testing.T) {
	const d = 100 * time.Millisecond
	for backoff, bounds := range map[Backoff][2]time.Duration{
		Constant: {75 * time.Millisecond, 125 * time.Millisecond}, Linear: {75 * time.Millisecond, 125 * time.Millisecond}, Exponential: {0, d},
	} {
		least, most := longest, time.Duration(0)
		for range 2000 {
			j := backoff.spread(t.Context(), d)
			least, most = min(least, j), max(most, j)
		}
		assert.GreaterOrEqual(t, least, bounds[0], backoff)
		assert.LessOrEqual(t, most, bounds[1], backoff)
		assert.Greater(t, most-least, (bounds[1]-bounds[0])*9/10, "%v: the range is used", backoff)
	}
	assert.Zero(t, upTo(t.Context(), 0))
	assert.Zero(t, upTo(t.Context(), -5))
}

func TestBackoff_Text(t *testing.T) {
	for backoff, text := range []string{"constant", "linear", "exponential"} {
		var b Backoff
		require.NoError(t, b.UnmarshalText([]byte(text)))
		assert.Equal(t, Backoff(backoff), b)
		assert.Equal(t, text, b.String())
	}
	_, err := Backoff(9).MarshalText()
	assert.ErrorContains(t, err, `Backoff must be one of constant, linear, exponential, got "Backoff(9)"`)
}

func TestOptions_Defaults(t *testing.T) {
	assert.Equal(t, Options{Name: "Retry", MaxRetries: 3, Delay: 2 * time.Second, MaxRetryAfter: time.Minute}, (*Options)(nil).withDefaults())
	o := Options{Name: "Again", MaxRetries: -1, Delay: -1, MaxRetryAfter: -1}
	assert.Equal(t, o, o.withDefaults())
}

func TestOptions_Validate(t *testing.T) {
	assert.NoError(t, (*Options)(nil).Validate())
	assert.NoError(t, (&Options{MaxRetries: Forever, Delay: -1, Backoff: Exponential}).Validate())
	bad := New(&Options{MaxRetries: -2, Backoff: 7, Delay: -2, MaxDelay: -1, MaxRetryAfter: -2, MaxDuration: -1})
	assert.EqualError(t, bad.Validate(), "retry: MaxRetries must be at least 0, or -1 for none, got -2; "+
		"Backoff must be Constant, Linear or Exponential, got Backoff(7); Delay must be at least 0, or -1 for none, got -2ns; "+
		"MaxDelay must be at least 0, got -1ns; MaxRetryAfter must be at least 0, or -1 for no limit, got -2ns; "+
		"MaxDuration must be at least 0, got -1ns")
}
