package simulate

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const ms = time.Millisecond

// through runs s through a pipeline that does nothing.
func through(t *testing.T, s Scenario) *Result {
	t.Helper()
	if s.Config == nil {
		s.Config = config(`pipelines: {p: {strategies: [{timeout: {timeout: 1000h}}]}}`)
	}
	r, err := Run(t.Context(), s)
	require.NoError(t, err)
	checkCounts(t, r)
	return r
}

// atOnce is a load of some requests that arrive at once.
func atOnce(size int) Load {
	return Load{For: 10 * time.Second, Open: &Open{Rate: Bursts{Size: size}}}
}

// near says that d is what it should be, but for the nanoseconds that are added to arrivals.
func near(t *testing.T, want, d time.Duration) {
	t.Helper()
	assert.InDelta(t, want, d, float64(20*time.Microsecond))
}

// about is near for quantiles, which have an error of one part in a hundred.
func about(t *testing.T, want, d time.Duration) {
	t.Helper()
	assert.InEpsilon(t, want, d, 0.01)
}

func TestService_Zero(t *testing.T) {
	r := through(t, Scenario{Load: constant(1000, time.Second)})
	assert.Equal(t, Counts{Requests: 1000, Offered: 1000, Admitted: 1000, Succeeded: 1000, Calls: 1000, Satisfied: 1000}, r.Total)
	assert.Zero(t, r.Latency.Max)
	assert.Zero(t, r.Wait)
}

func TestService_Capacity(t *testing.T) {
	s := Scenario{Load: atOnce(100), Service: Service{Latency: Fixed{10 * ms}, Capacity: 10}}
	r := through(t, s)
	near(t, 100*ms, r.Ended)
	about(t, 50*ms, r.Latency.P50)
	assert.EqualValues(t, 100, r.Series[0].Running)

	s.Service.QueueLimit = 20
	r = through(t, s)
	assert.EqualValues(t, 30, r.Total.Succeeded)
	assert.EqualValues(t, 70, r.Total.Failed)
	assert.EqualValues(t, 100, r.Total.Calls)
	assert.Equal(t, map[string]int64{"the service was full": 70}, r.Failures)

	s.Service.QueueLimit = -1
	r = through(t, s)
	assert.EqualValues(t, 10, r.Total.Succeeded)
	assert.EqualValues(t, 10, r.Series[0].Running)
}

func TestService_FailureRate(t *testing.T) {
	r := through(t, Scenario{Load: constant(1000, 10*time.Second), Service: Service{FailureRate: 0.3}})
	assert.InDelta(t, 3000, r.Total.Failed, 150)
	assert.Equal(t, map[string]int64{"the service failed": r.Total.Failed}, r.Failures)
}

func TestService_Periods(t *testing.T) {
	r := through(t, Scenario{
		Load:     constant(100, 10*time.Second),
		Interval: time.Second,
		Service: Service{Latency: Fixed{ms}, Periods: []Period{
			{From: 1 * time.Second, To: 5 * time.Second, FailureRate: new(1.0), Latency: Fixed{20 * ms}},
			{From: 3 * time.Second, To: 4 * time.Second},
			{From: 7 * time.Second, To: 8 * time.Second, Latency: Fixed{5 * ms}},
		}},
	})
	for i, p := range r.Series[:10] {
		switch i {
		case 1, 2, 4:
			assert.Greater(t, p.Failed, int64(95), i)
		case 7:
			about(t, 5*ms, p.Latency.P90)
		default:
			assert.Greater(t, p.Succeeded, int64(95), i)
			assert.LessOrEqual(t, p.Latency.P90, 2*ms, "the last of two periods counts, and only that: %d", i)
		}
	}
}

// A period has the failure rate of the service unless it has its own, also one of 0.
func TestService_FailureRateOfPeriods(t *testing.T) {
	r := through(t, Scenario{
		Load:     constant(100, 3*time.Second),
		Interval: time.Second,
		Service: Service{FailureRate: 1, Periods: []Period{
			{From: time.Second, To: 2 * time.Second, Latency: Fixed{ms}},
			{From: 2 * time.Second, To: 3 * time.Second, FailureRate: new(0.0)},
		}},
	})
	assert.Greater(t, r.Series[0].Failed, int64(95))
	assert.Greater(t, r.Series[1].Failed, int64(95))
	assert.Zero(t, r.Series[2].Failed)
}

// Calls that wait are served as soon as there is more capacity, and calls that are served go on when there is less.
func TestService_PeriodsOfCapacity(t *testing.T) {
	r := through(t, Scenario{
		Load:    atOnce(30),
		Service: Service{Latency: Fixed{100 * ms}, Capacity: 2, Periods: []Period{{From: 50 * ms, To: 120 * ms, Capacity: 10}}},
	})
	// 2 begin at 0, 8 at 50 ms, 2 at 100 ms; when the 8 end at 150 ms the capacity is 2 again, and the 2 still run. Of the
	// 18 that are left, 2 begin every 100 ms from 200 ms on.
	near(t, 200*ms+900*ms, r.Ended)
	assert.EqualValues(t, 30, r.Total.Succeeded)
}

// Callers that have left keep their places, unless the service notices.
func TestService_StopsCanceled(t *testing.T) {
	s := Scenario{
		Load: Load{For: 10 * time.Second, Open: &Open{Rate: Sum{Bursts{Size: 50}, Bursts{Size: 1, First: time.Second}}}},
		Service: Service{
			Latency: Fixed{100 * ms}, Capacity: 1,
		},
		Clients: Clients{Timeout: 250 * ms},
	}
	r := through(t, s)
	assert.EqualValues(t, 2, r.Total.Succeeded, "the last request waits behind the calls of clients that have left")
	assert.Equal(t, map[string]int64{"the client left": 49}, r.Failures)

	s.Service.StopsCanceled = true
	r = through(t, s)
	assert.EqualValues(t, 3, r.Total.Succeeded)
	assert.EqualValues(t, 48, r.Total.Failed)
	near(t, 1100*ms, r.Ended)

	// Room in the queue comes back at once.
	s.Service.QueueLimit = 10
	s.Load.Open.Rate = Sum{Bursts{Size: 11}, Bursts{Size: 11, First: 251 * ms}}
	r = through(t, s)
	assert.EqualValues(t, 22, r.Total.Calls)
	assert.Zero(t, r.Failures["the service was full"])
}

// A call that takes many intervals runs in each of them.
func TestService_LongCalls(t *testing.T) {
	r := through(t, Scenario{
		Load:     Load{For: 10 * time.Second, Open: &Open{Rate: Bursts{Size: 3, First: 1500 * ms}}},
		Service:  Service{Latency: Fixed{5 * time.Second}},
		Interval: time.Second,
	})
	running := make([]int64, len(r.Series))
	for i, p := range r.Series {
		running[i] = p.Running
	}
	assert.Equal(t, []int64{0, 3, 3, 3, 3, 3, 3}, running)
}

func TestScenario_Instances(t *testing.T) {
	r := through(t, Scenario{Config: config(window30), Load: constant(100, 2*time.Second), Instances: 3})
	assert.EqualValues(t, 180, r.Total.Admitted, "each has a limiter of its own")
	r = through(t, Scenario{
		Config: File("x.yaml", []byte(`pipelines: {p: {strategies: [{rate_limiter: {store: redis, fixed_window: {permit_limit: 30, window: 1s}}}]}}`), nil),
		Load:   constant(100, 1900*ms), Instances: 3,
	})
	assert.EqualValues(t, 60, r.Total.Admitted, "all have one")
}

// The queue of a service that drops calls does not grow with those it has dropped.
func TestServing_QueueOfDropped(t *testing.T) {
	r := &run{start: time.Now()}
	r.collector = newCollector(&Scenario{Interval: time.Hour}, r.now)
	s := &serving{run: r, options: &Service{Capacity: 1, StopsCanceled: true}, running: 1}
	for range 10_000 {
		c := &call{}
		s.queue = append(s.queue, c)
		s.waiting++
		s.leave(c)
	}
	assert.Less(t, len(s.queue), 100)
}
