package clock_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/weir-go/weir/internal/clock"
)

func TestNow(t *testing.T) {
	outside := clock.Now()
	assert.Positive(t, outside)
	assert.LessOrEqual(t, outside, clock.Now())
	synctest.Test(t, func(t *testing.T) {
		began := clock.Now()
		assert.Negative(t, began)
		time.Sleep(time.Hour)
		assert.Equal(t, began+time.Hour, clock.Now())
		assert.Equal(t, clock.Now(), clock.Of(time.Now()))
	})
}

func TestSleep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := clock.Now()
		clock.Sleep(t.Context(), 0)
		assert.Equal(t, began, clock.Now())
		clock.Sleep(t.Context(), time.Hour)
		assert.Equal(t, began+time.Hour, clock.Now())
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		clock.Sleep(ctx, time.Hour)
		assert.Equal(t, began+time.Hour+time.Minute, clock.Now())
	})
}
