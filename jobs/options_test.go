package jobs

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
)

func TestOptions_Defaults(t *testing.T) {
	got, err := Options{}.withDefaults()
	require.NoError(t, err)
	assert.Equal(t, Options{Schema: "weir", HandOver: time.Second, HandOverWorkers: 16, Lease: 30 * time.Second, CallTimeout: 10 * time.Second}, got)

	want := Options{
		Schema: "Weir_2", RiverSchema: "River_2", Cancel: true, MinDelay: time.Hour, HandOver: time.Minute, HandOverWorkers: 1,
		Lease: time.Second, CallTimeout: time.Millisecond,
	}
	got, err = want.withDefaults()
	require.NoError(t, err)
	assert.Equal(t, want, got)

	got, err = Options{HandOver: -1}.withDefaults()
	require.NoError(t, err)
	assert.Zero(t, got.HandOver, "off")
}

func TestOptions_NameWhatIsWrong(t *testing.T) {
	const schema = "must be letters, digits and _, not begin with a digit, and have at most 48 of them"
	for _, c := range []struct {
		o    Options
		want string
	}{
		{Options{Schema: "1a"}, "Schema " + schema + `, got "1a"`},
		{Options{Schema: `a"b`}, "Schema " + schema + `, got "a\"b"`},
		{Options{Schema: strings.Repeat("s", 49)}, "Schema must be letters"},
		{Options{RiverSchema: "a-b"}, "RiverSchema " + schema + `, got "a-b"`},
		{Options{RiverSchema: "a\n"}, "RiverSchema " + schema + `, got "a\n"`},
		{Options{RiverSchema: "ä"}, "RiverSchema must be letters"},
		{Options{RiverSchema: strings.Repeat("s", 49)}, "RiverSchema must be letters"},
		{Options{MinDelay: -1}, "MinDelay must be 0 to 87600h0m0s, got -1ns"},
		{Options{MinDelay: math.MaxInt64}, "MinDelay must be 0 to 87600h0m0s, got 2562047h47m16.854775807s"},
		{Options{HandOver: -2}, "HandOver must be -1, or 0 to 1m, got -2ns"},
		{Options{HandOver: time.Minute + 1}, "HandOver must be -1, or 0 to 1m, got 1m0.000000001s"},
		{Options{HandOverWorkers: -1}, "HandOverWorkers must be 0 to 10000, got -1"},
		{Options{HandOverWorkers: 10_001}, "HandOverWorkers must be 0 to 10000, got 10001"},
		{Options{Lease: time.Second - 1}, "Lease must be 0 or 1s to 87600h0m0s, got 999.999999ms"},
		{Options{Lease: -1}, "Lease must be 0 or 1s to 87600h0m0s, got -1ns"},
		{Options{Lease: maxDelay + 1}, "Lease must be 0 or 1s to 87600h0m0s, got 87600h0m0.000000001s"},
		{Options{CallTimeout: 1}, "CallTimeout must be 0 or 1ms to 87600h0m0s, got 1ns"},
		{Options{CallTimeout: math.MinInt64}, "CallTimeout must be 0 or 1ms to"},
	} {
		_, err := c.o.withDefaults()
		require.ErrorIs(t, err, weir.ErrInvalidOptions, c.want)
		assert.ErrorContains(t, err, c.want)
		assert.Equal(t, 1, strings.Count(err.Error(), "must be"), "%v", err)
	}
	_, err := Options{Schema: "-", RiverSchema: "-", MinDelay: -1, HandOver: -2, HandOverWorkers: -1, Lease: 1, CallTimeout: -1}.withDefaults()
	require.Error(t, err)
	assert.Equal(t, 7, strings.Count(err.Error(), "must be"), "all at once: %v", err)
}

func TestEventKind_String(t *testing.T) {
	assert.Equal(t, "database recovered", EventDatabaseRecovered.String())
	assert.Equal(t, "no event", EventKind(0).String())
	assert.Equal(t, "newer schema", EventNewerSchema.String())
	assert.Equal(t, "EventKind(6)", EventKind(6).String())
}

func TestThrottledError(t *testing.T) {
	assert.EqualError(t, &ThrottledError{Limiter: Ref{Type: FixedWindow, Name: "api", Key: "k"}}, `jobs: throttled by fixed window "api" key "k"`)
}

// A job's declarations count together with those of the configuration, the job's first.
func TestThrottler_NewRequest(t *testing.T) {
	th := &Throttler{o: Options{MinDelay: time.Second, HandOver: 2 * time.Second}}
	parse := func(throttle Throttle) *parsedThrottle {
		return weir.Must(Declare(throttle)).parsed
	}
	job := jobWith(`{"a": "x"}`, `{"batch": "b"}`)
	at := time.UnixMicro(1_700_000_000_000_001)
	job.AttemptedAt = &at

	t.Run("nothing declared", func(t *testing.T) {
		req, err := th.newRequest(&session{job: job})
		require.NoError(t, err)
		assert.Empty(t, req.needs)
		assert.True(t, req.snoozes)
	})
	t.Run("defaults", func(t *testing.T) {
		s := &session{job: job, declared: []*parsedThrottle{parse(Throttle{Limits: []Limit{{Mutex: "m", Key: "{a}"}}})}}
		req, err := th.newRequest(s)
		require.NoError(t, err)
		assert.Equal(t, []need{{ref: Ref{Type: Mutex, Name: "m", Key: "x"}, owner: "job 7"}}, req.needs)
		assert.Equal(t, at, req.attempted)
		assert.True(t, req.snoozes)
		assert.False(t, req.strict)
		assert.EqualValues(t, 1_000_000, req.minDelay)
		assert.EqualValues(t, 2_000_000, req.handOver)
	})
	t.Run("several", func(t *testing.T) {
		s := &session{job: job, declared: []*parsedThrottle{
			parse(Throttle{Limits: []Limit{{Mutex: "m", Owner: "{metadata:batch}", Mode: Acquire, Deadline: -1}, {Semaphore: "m"}}}),
			parse(Throttle{Limits: []Limit{{Semaphore: "m"}, {FixedWindow: "m"}}, Cancel: true, MinDelay: time.Hour}),
			parse(Throttle{MinDelay: time.Minute, Strict: true}),
		}}
		req, err := th.newRequest(s)
		require.NoError(t, err)
		assert.Equal(t, []need{
			{ref: Ref{Type: Mutex, Name: "m"}, owner: "owner b", named: true, mode: Acquire}, {ref: Ref{Type: Semaphore, Name: "m"}, owner: "job 7"},
			{ref: Ref{Type: FixedWindow, Name: "m"}, owner: "job 7"},
		}, req.needs)
		assert.False(t, req.snoozes, "any")
		assert.Equal(t, int64(3600_000_000), req.minDelay, "the longest")
		assert.True(t, req.strict, "any")
	})
	t.Run("an owner is not a job", func(t *testing.T) {
		named, other := jobWith(`{"a": "job 7"}`, ``), jobWith(`{"a": "7"}`, ``)
		named.AttemptedAt, other.AttemptedAt = &at, &at
		owners := map[string]bool{"job 7": true}
		for _, j := range []*session{{job: named}, {job: other}} {
			j.declared = []*parsedThrottle{parse(Throttle{Limits: []Limit{{Mutex: "m", Owner: "{a}"}}})}
			req, err := th.newRequest(j)
			require.NoError(t, err)
			assert.False(t, owners[req.needs[0].owner], req.needs[0].owner)
			owners[req.needs[0].owner] = true
		}
	})
	t.Run("twice with different owners, modes or deadlines", func(t *testing.T) {
		for _, l := range []Limit{{Mutex: "m", Owner: "other", Mode: Acquire}, {Mutex: "m", Owner: "o", Mode: Release}, {Mutex: "m", Owner: "o", Mode: Acquire, Deadline: 1}} {
			_, err := th.newRequest(&session{job: job, declared: []*parsedThrottle{parse(Throttle{Limits: []Limit{{Mutex: "m", Owner: "o", Mode: Acquire}}}), parse(Throttle{Limits: []Limit{l}})}})
			assert.ErrorIs(t, err, weir.ErrInvalidOptions)
			assert.ErrorContains(t, err, `job 7 needs mutex "m" twice, with different owners, modes or deadlines`)
		}
	})
	t.Run("no key", func(t *testing.T) {
		_, err := th.newRequest(&session{job: job, declared: []*parsedThrottle{parse(Throttle{Limits: []Limit{{Mutex: "m", Key: "{b}"}}})}})
		assert.ErrorIs(t, err, ErrKey)
		assert.ErrorContains(t, err, `mutex "m": jobs: no key: field {b} of job 7 is missing`)
		_, err = th.newRequest(&session{job: job, declared: []*parsedThrottle{parse(Throttle{Limits: []Limit{{Mutex: "m", Owner: "{b}"}}})}})
		assert.ErrorIs(t, err, ErrKey)
		assert.ErrorContains(t, err, `owner of mutex "m": jobs: no key: field {b} of job 7 is missing`)
	})
	t.Run("never attempted", func(t *testing.T) {
		_, err := th.newRequest(&session{job: jobWith(`{}`, `{}`), declared: []*parsedThrottle{onMutex.parsed}})
		assert.ErrorIs(t, err, ErrForeignJob)
		_, err = th.newRequest(&session{job: jobWith(`{}`, `{}`)})
		assert.NoError(t, err, "it needs nothing")
	})
	t.Run("too many", func(t *testing.T) {
		s := &session{job: job}
		for n := range maxLimits + 1 {
			_, err := th.newRequest(s)
			require.NoError(t, err)
			s.declared = append(s.declared, parse(Throttle{Limits: []Limit{{Mutex: fmt.Sprint(n)}}}))
		}
		_, err := th.newRequest(s)
		assert.ErrorIs(t, err, weir.ErrInvalidOptions)
		assert.ErrorContains(t, err, "job 7 needs more than 20 limits")
	})
}
