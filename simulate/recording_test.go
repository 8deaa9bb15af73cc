package simulate

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/simulate/internal/input"
)

func TestRecordingOf(t *testing.T) {
	_, err := RecordingOf([]Request{{At: 2}, {At: 1}})
	assert.EqualError(t, err, "simulate: request 1 of the recording is at 1ns, before the previous one at 2ns")
	_, err = RecordingOf([]Request{{At: -1}})
	assert.EqualError(t, err, "simulate: request 0 of the recording is at -1ns, which must be at least 0")
	_, err = RecordingOf([]Request{{Cost: -1}})
	assert.EqualError(t, err, "simulate: request 0 of the recording costs -1, which must be at least 0")
	_, err = RecordingOf([]Request{{At: input.Longest + 1}})
	assert.EqualError(t, err, "simulate: the recording is 87600h0m0.000000001s long, which is more than 87600h0m0s")
	_, err = RecordingOf(nil)
	assert.EqualError(t, err, "simulate: the recording has no requests")

	r, err := RecordingOf([]Request{{At: 1}, {At: 1}, {At: time.Second, Key: "a", Cost: 3}})
	require.NoError(t, err)
	assert.Equal(t, []any{int64(3), time.Second, true}, []any{r.Count, r.Length, r.Begin.IsZero()})
	var all []input.Request
	for q, err := range r.all() {
		require.NoError(t, err)
		all = append(all, q)
	}
	assert.Equal(t, []input.Request{{At: 1}, {At: 1}, {At: time.Second, Key: "a", Cost: 3}}, all)
}

// A file is read inside the bubble, by each simulation from its beginning.
func TestRun_Recording(t *testing.T) {
	var log strings.Builder
	for i := range 3000 {
		fmt.Fprintf(&log, "{\"ts\":%d.%03d,\"request\":{\"client_ip\":\"198.51.100.%d\"}}\n", 1774742400+i/1000, i*7919%1000, i%250)
	}
	name := filepath.Join(t.TempDir(), "some.log")
	require.NoError(t, os.WriteFile(name, []byte(log.String()), 0o600))
	r, err := ReadAccessLog(name, nil)
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

// A file that has lost requests since it was read ends the simulation with an error.
func TestRun_RecordingChanges(t *testing.T) {
	name := filepath.Join(t.TempDir(), "some.csv")
	require.NoError(t, os.WriteFile(name, []byte("1,a\n5,b\n"), 0o600))
	r, err := ReadCSV(name, nil)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(name, []byte("1,a\n"), 0o600))
	s := Scenario{Load: Load{Recording: r}, Config: config(`{pipelines: {p: {strategies: [{timeout: {timeout: 1s}}]}}}`)}
	_, err = Run(t.Context(), s)
	assert.ErrorIs(t, err, errChanged)
	require.NoError(t, os.Remove(name))
	_, err = Run(t.Context(), s)
	assert.ErrorIs(t, err, os.ErrNotExist)
}

// A recording of one instant has no length.
func TestRun_RecordingOfOneInstant(t *testing.T) {
	recording, err := RecordingOf([]Request{{}, {}})
	require.NoError(t, err)
	r := through(t, Scenario{Load: Load{Recording: recording}})
	assert.EqualValues(t, 2, r.Total.Satisfied)
	checkView(t, r)
}
