package simulate

import (
	"errors"
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A file is read inside the bubble, by each simulation from its beginning.
func TestRun_Recording(t *testing.T) {
	r, err := ReadAccessLog("some.log", &RecordingOptions{Open: func(string) (io.ReadCloser, error) {
		return io.NopCloser(&manyLines{lines: 3000}), nil
	}})
	require.NoError(t, err)
	s := Scenario{Load: Load{Recording: r}, Config: config(`{limiters: {a: {partitioned: {key: key, each: {fixed_window: {permit_limit: 3, window: 1s}}}}},
		pipelines: {p: {strategies: [{rate_limiter: {limiter: a}}]}}}`)}
	one, err := Run(t.Context(), s)
	require.NoError(t, err)
	assert.Equal(t, r.Count, one.Total.Requests)
	assert.Equal(t, 250, one.Keys.Count)
	assert.Equal(t, 3*time.Second, one.For.Round(time.Second))
	assert.NotZero(t, one.Total.Rejected)
	two, err := Run(t.Context(), s)
	require.NoError(t, err)
	assert.Equal(t, hashOf(t, one), hashOf(t, two))

	s.Load.For = time.Second
	short, err := Run(t.Context(), s)
	require.NoError(t, err)
	assert.Equal(t, int64(1000), short.Total.Requests)
}

// A recording that cannot be read to its end ends the simulation with the error.
func TestRun_RecordingFails(t *testing.T) {
	broken := errors.New("broken")
	var fails error
	r, err := NewRecording(func(yield func(Request, error) bool) {
		for i := range 10 {
			if !yield(Request{At: time.Duration(i) * time.Second}, nil) {
				return
			}
		}
		yield(Request{At: time.Minute}, fails)
	})
	require.NoError(t, err)
	fails = broken
	_, err = Run(t.Context(), Scenario{
		Load:   Load{Recording: r},
		Config: config(`{pipelines: {p: {strategies: [{timeout: {timeout: 1s}}]}}}`),
	})
	assert.ErrorIs(t, err, broken)
}
