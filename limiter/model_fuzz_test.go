package limiter_test

import (
	"testing"

	"github.com/weir-go/weir/limiter/limitertest"
)

// fuzz runs the scripts that the fuzzer's bytes say. Each byte is one choice of
// generate: the first ten or so are the limits, then come some three a step.
func fuzz(f *testing.F, k limitertest.Kind) {
	f.Add([]byte{})
	f.Add([]byte("\x03\x02\x03\x08\x00\x05\x00" + "\x02\x05\x01\x14\x02\x14\x00\x60\x01\x38\x03\x48\x02\x02"))
	f.Add([]byte("\x05\x01\x02\x0a\x01\x01\x02" + "\x03\x20\x01\x20\x02\x20\x03\x20\x00\x55\x00\x01\x00\x02\x60\x00\x44\x01\x01"))
	f.Add([]byte("\x02\x06\x04\x05\x00\x02\x01" + "\x02\x00\x00\x20\x01\x5c\x00\x45\x02\x01\x00\x5c\x00\x5b\x01\x00\x00\x61"))
	f.Fuzz(func(t *testing.T, data []byte) {
		generate(k, &byteSource{data}).holds(t, build, "fuzzed")
	})
}

func FuzzConcurrency(f *testing.F)   { fuzz(f, limitertest.Concurrency) }
func FuzzFixedWindow(f *testing.F)   { fuzz(f, limitertest.FixedWindow) }
func FuzzCalendar(f *testing.F)      { fuzz(f, limitertest.Calendar) }
func FuzzSlidingWindow(f *testing.F) { fuzz(f, limitertest.SlidingWindow) }
func FuzzTokenBucket(f *testing.F)   { fuzz(f, limitertest.TokenBucket) }
