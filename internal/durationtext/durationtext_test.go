package durationtext_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/weir-go/weir/internal/durationtext"
)

func TestOf(t *testing.T) {
	for want, d := range map[string]time.Duration{
		"0s": 0, "10s": 10 * time.Second, "1m": time.Minute, "1m30s": 90 * time.Second, "10m": 10 * time.Minute,
		"1h": time.Hour, "100h": 100 * time.Hour, "1h10m": 70 * time.Minute, "1h0m1s": time.Hour + time.Second,
		"-1m": -time.Minute, "1.5ms": 1500 * time.Microsecond,
	} {
		assert.Equal(t, want, durationtext.Of(d))
	}
}
