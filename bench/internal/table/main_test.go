package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const output = `goos: linux
BenchmarkLimiterGranted/by=weir-token-bucket/goroutines=1-2   1000  50 ns/op
BenchmarkRedis/keys=1/by=floor-script/goroutines=32-2   1000  20000 ns/op  50000 ops/s  600000 p50-ns  1234567 p99-ns  300 B/op  9 allocs/op
BenchmarkRedis/keys=1/by=weir/goroutines=32-2     1000  20000 ns/op  30000 ops/s  800 p50-ns  1234567 p99-ns  300 B/op  9 allocs/op
BenchmarkRedis/keys=1/by=weir/goroutines=32-2     1000  20000 ns/op  42345 ops/s  900 p50-ns  1234567 p99-ns  300 B/op  9 allocs/op
BenchmarkRedis/keys=1/by=weir/goroutines=32-2     1000  20000 ns/op  99999 ops/s  900 p50-ns  1234567 p99-ns  300 B/op  9 allocs/op
BenchmarkRedis/keys=1/by=throttled/goroutines=32        1000  20000 ns/op  50000 ops/s  40000 granted/s  12.34 failed-%
BenchmarkRedis/keys=1/by=weir-rejected-cached/goroutines=1-2  1000  70.4 ns/op
BenchmarkLimiterRefilled/by=weir-token-bucket/goroutines=2-2  1000  60 ns/op
BenchmarkLimiterRefilled/by=floor-gcra/goroutines=2-2         1000  50 ns/op
BenchmarkLimiterRefilled/by=weir-token-bucket/goroutines=2-2  1000  90 ns/op
BenchmarkLimiterRefilled/by=floor-gcra/goroutines=2-2         1000  100 ns/op
BenchmarkLimiterRefilled/by=weir-token-bucket/goroutines=2-2  1000  50 ns/op
BenchmarkLimiterRefilled/by=floor-gcra/goroutines=2-2         1000  200 ns/op
BenchmarkLimiterRefilled/by=weir-token-bucket/goroutines=8-2  1000  60 ns/op
BenchmarkLimiterRefilled/by=floor-gcra/goroutines=8-2         1000  100 ns/op
BenchmarkTelemetry/signals=spans/by=weir-2                    1000  1200 ns/op
BenchmarkTelemetry/signals=spans/by=bare-2                    1000  1000 ns/op
PASS
`

func TestRun(t *testing.T) {
	var out strings.Builder
	ok, err := run(nil, false, strings.NewReader(output), &out)
	require.NoError(t, err)
	assert.False(t, ok, "slower than throttled")
	assert.Equal(t, `## Redis, one hot key, 32 goroutines

| | ops/s | p50 | p99 | B/op | granted/s | failed |
|---|--:|--:|--:|--:|--:|--:|
| floor-script | 50,000 | 600 µs | 1.23 ms | 300 |  |  |
| throttled | 50,000 |  |  |  | 40,000 | 12.3 % |
| weir | 42,300 | 900 ns | 1.23 ms | 300 |  |  |

| | ours | peer | measured | promised | |
|---|--:|--:|--:|--:|---|
| refilled on every call: LimiterRefilled, goroutines=2 | weir-token-bucket 60 ns | floor-gcra 100 ns | 0.9 × | ≤ 1.3 × | kept |
| refilled on every call: LimiterRefilled, goroutines=8 | weir-token-bucket 60 ns | floor-gcra 100 ns | 0.6 × |  |  |
| telemetry, over the same by hand: Telemetry, signals=spans | weir 1.2 µs | bare 1 µs | 200 ns | ≤ 150 ns | **missed** |
| as fast as an empty script: Redis, keys=1, goroutines=32 | weir 42,300/s | floor-script 50,000/s | 0.847 × | ≥ 0.9 × | **missed** |
| and faster than the peers: Redis, keys=1, goroutines=32 | weir 42,300/s | throttled 50,000/s | 0.847 × | ≥ 1 × | **missed** |
| coalescing: Redis, keys=1, goroutines=32 | weir 42,300/s | floor-script 50,000/s | 0.847 × | ≥ 1.5 × | **missed** |
| an exhausted key that is remembered: Redis, keys=1, goroutines=1 | weir-rejected-cached 70 ns |  | 70 ns | ≤ 200 ns | kept |
`+explanation, out.String())
}

func TestRun_best(t *testing.T) {
	var out strings.Builder
	_, err := run(nil, true, strings.NewReader(output), &out)
	require.NoError(t, err)
	assert.Contains(t, out.String(), "weir-token-bucket 50 ns | floor-gcra 50 ns | 1 × |")
	assert.Contains(t, out.String(), "weir 100,000/s | floor-script 50,000/s | 2 × |")
}

func TestRunFile(t *testing.T) {
	_, err := run([]string{"no such file"}, false, nil, nil)
	assert.Error(t, err)
}

func TestRounded(t *testing.T) {
	for v, want := range map[float64]string{0: "0", 12.4: "12", 999: "999", 1234: "1,230", 999_960: "1,000,000", 12_345_678: "12,300,000"} {
		assert.Equal(t, want, rounded(v))
	}
}
