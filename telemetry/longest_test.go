package telemetry

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/weir-go/weir/internal/clock"
)

func TestLongest(t *testing.T) {
	for name, began := range map[string]time.Duration{
		"when the process starts": 0, "in a bubble": -26 * 365 * 24 * time.Hour, "after thirty years": 30 * 365 * 24 * time.Hour,
	} {
		t.Run(name, func(t *testing.T) {
			began = began/period*period + period
			var l longest
			assert.Zero(t, l.at(began))
			l.record(began, 2*time.Second)
			l.record(began+time.Second, time.Second)
			for range 3 {
				assert.Equal(t, 2*time.Second, l.at(began+time.Second), "reading does not reset it")
			}
			l.record(began+time.Minute, 1500*time.Millisecond)
			assert.Equal(t, 2*time.Second, l.at(began+75*time.Second), "for longer than a minute")
			assert.Equal(t, 1500*time.Millisecond, l.at(began+90*time.Second))
			assert.Zero(t, l.at(began+time.Hour))
			l.record(began+time.Hour, time.Millisecond)
			assert.Equal(t, time.Millisecond, l.at(began+time.Hour), "the slots are used again")
		})
	}
}

func TestLongest_Bounds(t *testing.T) {
	var l longest
	l.record(0, -time.Second)
	assert.Zero(t, l.at(0))
	l.record(0, 1500*time.Nanosecond)
	assert.Equal(t, time.Microsecond, l.at(0), "whole microseconds")
	l.record(0, 1<<63-1)
	assert.Equal(t, maxRecorded, l.at(0))
	assert.Equal(t, maxRecorded, l.at(5*period))
	assert.Zero(t, l.at(6*period))
}

// A goroutine that was late does not replace what others have recorded in a later period that uses the same slot.
func TestLongest_LateRecord(t *testing.T) {
	var l longest
	l.record(6*period, time.Second)
	l.record(0, time.Hour)
	assert.Equal(t, time.Second, l.at(6*period))
	assert.Equal(t, time.Second, l.at(5*period), "a reader that was late")
}

func TestLongest_ConcurrentSafe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l longest
		var wg sync.WaitGroup
		for i := range 8 {
			wg.Go(func() {
				for n := range 100 {
					l.record(clock.Now(), time.Duration(8*n+i)*time.Millisecond)
					l.now()
				}
			})
		}
		wg.Wait()
		assert.Equal(t, 799*time.Millisecond, l.now())
	})
}
