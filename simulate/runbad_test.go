package simulate

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/registry"
)

// window30 has a fixed window of 30 permits a second.
const window30 = `pipelines: {p: {strategies: [{rate_limiter: {fixed_window: {permit_limit: 30, window: 1s}}}]}}`

// constant is an open load of evenly spaced requests.
func constant(rate float64, length time.Duration) Load {
	return Load{For: length, Open: &Open{Rate: ConstantRate{rate}}}
}

func TestScenario_Validate(t *testing.T) {
	for field, change := range map[string]func(*Scenario){
		"Config":      func(s *Scenario) { s.Config = nil },
		"Instances":   func(s *Scenario) { s.Instances = -1 },
		"MaxInFlight": func(s *Scenario) { s.MaxInFlight = -1 },
		"Interval":    func(s *Scenario) { s.Interval = time.Microsecond },
		"Windows[1]":  func(s *Scenario) { s.Windows = []time.Duration{time.Second, 0} },

		"Load":                   func(s *Scenario) { s.Load.Open = nil },
		"Load.For":               func(s *Scenario) { s.Load.For = 0 },
		"Load.Open.Rate":         func(s *Scenario) { s.Load.Open.Rate = nil },
		"Load.Open.Rate.Rate":    func(s *Scenario) { s.Load.Open.Rate = ConstantRate{math.NaN()} },
		"Load.Open.Rate[0]":      func(s *Scenario) { s.Load.Open.Rate = Sum{nil} },
		"Load.Closed.Clients":    func(s *Scenario) { s.Load.Open, s.Load.Closed = nil, &Closed{Think: Fixed{1}} },
		"Load.Closed.Think":      func(s *Scenario) { s.Load.Open, s.Load.Closed = nil, &Closed{Clients: 1} },
		"Load.Closed.Think.Mean": func(s *Scenario) { s.Load.Open, s.Load.Closed = nil, &Closed{Clients: 1, Think: Exponential{}} },
		"Load.Keys":              func(s *Scenario) { s.Load.Keys = (*UniformKeys)(nil) },
		"Load.Keys.Count":        func(s *Scenario) { s.Load.Keys = UniformKeys{} },
		"Load.Cost":              func(s *Scenario) { s.Load.Cost = (*FixedCost)(nil) },
		"Load.Cost.Permits":      func(s *Scenario) { s.Load.Cost = FixedCost{-1} },

		"Service.Latency":                func(s *Scenario) { s.Service.Latency = (*Fixed)(nil) },
		"Service.Latency.Time":           func(s *Scenario) { s.Service.Latency = Fixed{-1} },
		"Service.Capacity":               func(s *Scenario) { s.Service.Capacity = -1 },
		"Service.QueueLimit":             func(s *Scenario) { s.Service.QueueLimit = -2 },
		"Service.FailureRate":            func(s *Scenario) { s.Service.FailureRate = 1.1 },
		"Service.Periods[0].From":        func(s *Scenario) { s.Service.Periods = []Period{{From: -1, To: 1}} },
		"Service.Periods[0].To":          func(s *Scenario) { s.Service.Periods = []Period{{From: 1, To: 1}} },
		"Service.Periods[0].FailureRate": func(s *Scenario) { s.Service.Periods = []Period{{To: 1, FailureRate: new(math.NaN())}} },
		"Service.Periods[0].Latency":     func(s *Scenario) { s.Service.Periods = []Period{{To: 1, Latency: (*Fixed)(nil)}} },
		"Service.Periods[0].Capacity":    func(s *Scenario) { s.Service.Periods = []Period{{To: 1, Capacity: -1}} },

		"Load.Recording": func(s *Scenario) { s.Load = Load{Recording: &Recording{}} },

		"Clients.Timeout":                func(s *Scenario) { s.Clients.Timeout = -1 },
		"Clients.OnRejection.MaxRetries": func(s *Scenario) { s.Clients.OnRejection.MaxRetries = -1 },
		"Clients.OnRejection.Delay":      func(s *Scenario) { s.Clients.OnRejection.Delay = -1 },
		"Clients.OnFailure.MaxDelay":     func(s *Scenario) { s.Clients.OnFailure.MaxDelay = -1 },
		"Clients.OnFailure.Backoff":      func(s *Scenario) { s.Clients.OnFailure.Backoff = 9 },
	} {
		s := Scenario{Config: config(window30), Load: constant(100, time.Second)}
		change(&s)
		_, err := Run(t.Context(), s)
		wrong, ok := errors.AsType[*weir.OptionsError](err)
		if assert.True(t, ok, "%s: %v", field, err) && assert.Len(t, wrong.Fields, 1, field) {
			assert.Equal(t, field, wrong.Fields[0].Path)
		}
	}
}

// Without a For, the load is as long as the recording.
func TestScenario_Validate_IntervalOfRecording(t *testing.T) {
	r, err := RecordingOf([]Request{{At: 30 * 24 * time.Hour}})
	require.NoError(t, err)
	s := Scenario{Config: config(window30), Load: Load{Recording: r}, Interval: time.Millisecond}
	assert.ErrorContains(t, s.Validate(), "Interval must be at least 25.92s for a load of 720h0m0s")
	s.Interval = time.Minute
	assert.NoError(t, s.Validate())
}

func TestRun_Config(t *testing.T) {
	boom := errors.New("boom")
	for name, c := range map[string]struct {
		config   Config
		pipeline string
		want     string
	}{
		"an error": {func(*Setup) (registry.Change, error) { return registry.Change{}, boom }, "", "boom"},
		"an error of the second": {func(s *Setup) (registry.Change, error) {
			if s.Instance == 1 {
				return registry.Change{}, boom
			}
			return config(window30)(s)
		}, "", "boom"},
		"a panic":                {func(*Setup) (registry.Change, error) { panic(boom) }, "", "boom"},
		"the end of a goroutine": {func(*Setup) (registry.Change, error) { runtime.Goexit(); panic("not reached") }, "", "Config ended its goroutine"},
		"a panic of a pipeline": {func(*Setup) (registry.Change, error) {
			return registry.Change{Define: map[string]registry.BuildFunc{"p": func(*registry.Builder) error { panic(boom) }}}, nil
		}, "", "boom"},
		"nothing":     {func(*Setup) (registry.Change, error) { return registry.Change{}, nil }, "", "Config must define a pipeline"},
		"not defined": {config(window30), "q", `Pipeline must be one of p, got "q"`},
		"not valid":   {config(`pipelines: {p: {strategies: [{rate_limiter: {}}]}}`), "", "test.yaml:1:"},
		"several":     {config(`pipelines: {p: {strategies: []}, q: {strategies: []}}`), "", "Pipeline must say which pipeline the requests go through: p, q"},
	} {
		t.Run(name, func(t *testing.T) {
			r, err := Run(t.Context(), Scenario{Config: c.config, Pipeline: c.pipeline, Instances: 2, Load: constant(100, time.Second)})
			assert.Nil(t, r)
			assert.ErrorContains(t, err, c.want)
			if c.want == "boom" && name != "a panic of a pipeline" {
				assert.ErrorIs(t, err, boom)
			}
		})
	}
}

// calling calls a function with each Duration.
type calling func()

func (c calling) Duration(*rand.Rand) time.Duration { c(); return time.Millisecond }

// Requests are everywhere when the context ends: in queues, in the service, and waiting to try again. All of their
// goroutines end, and none of them touches the others' things any more.
func TestRun_ContextEnds(t *testing.T) {
	cause := errors.New("enough")
	n := 12
	if testing.Short() {
		n = 4
	}
	for seed := range n {
		s, text := randomScenario(uint64(seed))
		ctx, cancel := context.WithCancelCause(t.Context())
		calls := 0
		s.Load.Closed, s.Load.Open, s.Load.For = nil, &Open{Poisson: true, Rate: ConstantRate{400}}, time.Minute
		s.Service.Latency = calling(func() {
			if calls++; calls == 300 {
				cancel(cause)
			}
		})
		r, err := Run(ctx, s)
		if err == nil { // the random pipeline lets fewer calls through
			assert.Less(t, calls, 300, text)
			continue
		}
		assert.Nil(t, r)
		assert.ErrorIs(t, err, cause, text)
		assert.NotContains(t, err.Error(), "did not end", text)
	}
}

func TestRun_ContextEnded(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	cause := errors.New("before")
	cancel(cause)
	_, err := Run(ctx, Scenario{Config: config(window30), Load: constant(100, time.Hour)})
	assert.ErrorIs(t, err, cause)
}

func TestRun_InsideBubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, err := Run(t.Context(), Scenario{Config: config(window30), Load: constant(100, time.Second)})
		assert.ErrorContains(t, err, "must not be called inside a bubble of testing/synctest")
	})
}

// A Run whose context ends while it makes a large number of instances makes no more of them.
func TestRun_ContextEndsInConfig(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	boom, made := errors.New("boom"), 0
	s := Scenario{Instances: mostInstances, Load: constant(1, time.Second), Config: func(s *Setup) (registry.Change, error) {
		if made++; s.Instance == 2 {
			cancel(boom)
		}
		return config(window30)(s)
	}}
	_, err := Run(ctx, s)
	assert.ErrorIs(t, err, boom)
	assert.Equal(t, 3, made)
	s.Instances++
	_, err = Run(t.Context(), s)
	assert.ErrorContains(t, err, "Instances must be at most 10000, got 10001")
}

func TestScenario_MaxInFlight(t *testing.T) {
	for name, load := range map[string]Load{
		"open":   constant(100, time.Minute),
		"closed": {For: time.Minute, Closed: &Closed{Clients: 51, Think: Fixed{time.Second}}},
	} {
		t.Run(name, func(t *testing.T) {
			s := Scenario{
				Config:      config(`pipelines: {p: {strategies: [{timeout: {timeout: 1h}}, {hedging: {delay: 10ms}}]}}`),
				Load:        load,
				Service:     Service{Latency: Fixed{time.Hour}},
				MaxInFlight: 50,
			}
			_, err := Run(t.Context(), s)
			assert.ErrorContains(t, err, map[string]string{
				"open":   "more than 50 requests are in flight",
				"closed": "Load.Closed.Clients must be at most MaxInFlight, which is 50, got 51",
			}[name])
			s.Service.Latency, s.MaxInFlight = Fixed{time.Millisecond}, 51
			r, err := Run(t.Context(), s)
			if assert.NoError(t, err) {
				assert.Equal(t, r.Total.Requests, r.Total.Satisfied)
			}
		})
	}
}

// What would go on for an hour does not keep a run of a second going: a minute after the load it is cut off.
func TestRun_CutsOff(t *testing.T) {
	for name, c := range map[string]struct {
		file  string
		load  Load
		retry Reaction
		want  Counts
	}{
		"tokens that come in an hour": {
			`pipelines: {p: {strategies: [{rate_limiter: {token_bucket: {token_limit: 10, tokens_per_period: 1, replenishment_period: 1h, queue_limit: 5}}}]}}`,
			constant(10, 10*time.Second), Reaction{},
			Counts{Requests: 100, Offered: 100, Admitted: 10, Queued: 5, Rejected: 85, Succeeded: 10, Failed: 5, Calls: 10, Satisfied: 10, Unfinished: 5},
		},
		"an execution that holds the only permit and asks for another one": {
			`{limiters: {one: {concurrency: {permit_limit: 1, queue_limit: 1}}},
				pipelines: {p: {strategies: [{rate_limiter: {limiter: one}}, {rate_limiter: {name: again, limiter: one}}]}}}`,
			constant(10, time.Second), Reaction{}, Counts{Requests: 10, Offered: 10, Queued: 1, Rejected: 9, Failed: 1, Unfinished: 1},
		},
		"clients that would come back in an hour": {
			`pipelines: {p: {strategies: [{rate_limiter: {fixed_window: {permit_limit: 10, window: 1h}}}]}}`,
			constant(20, time.Second), Reaction{MaxRetries: 1, RetryAfter: true},
			Counts{Requests: 20, Offered: 20, Admitted: 10, Rejected: 10, Succeeded: 10, Calls: 10, Satisfied: 10, Unfinished: 10},
		},
	} {
		r := through(t, Scenario{Config: config(c.file), Load: c.load, Clients: Clients{OnRejection: c.retry}})
		assert.Equal(t, c.want, r.Total, name)
		assert.Equal(t, c.load.For+time.Minute, r.Ended.Truncate(time.Second), name)
		if c.want.Queued == 5 {
			assert.EqualValues(t, 5, r.Series[len(r.Series)/2].Waiting, "they wait in every interval")
		}
	}
	r := through(t, Scenario{Load: Load{For: time.Second, Closed: &Closed{Clients: 5, Think: Uniform{time.Millisecond, 10 * time.Hour}}}})
	assert.Less(t, r.Ended, time.Second, "clients that would think until later leave")
}

// Run needs a bubble, which Go gives to tests only: a program that is none has one, too.
func TestRun_OrdinaryProgram(t *testing.T) {
	if testing.Short() {
		t.Skip("builds a program")
	}
	program := filepath.Join(t.TempDir(), "program")
	if runtime.GOOS == "windows" {
		program += ".exe"
	}
	out, err := exec.CommandContext(t.Context(), "go", "build", "-o", program, "./testdata/program").CombinedOutput()
	require.NoError(t, err, "%s", out)
	out, err = exec.CommandContext(t.Context(), program).CombinedOutput()
	require.NoError(t, err, "%s", out)
	assert.Equal(t, "offered 1000 admitted 300\n", string(out))
}
