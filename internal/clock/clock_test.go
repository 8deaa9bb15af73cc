package clock_test

import (
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
