package simulate

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A simulation through a concurrency limiter is compared with a model of it to the nanosecond, and the model, which is
// fast, with the formulas of queueing theory.

// A queueModel is a queue with servers that takes the arrivals and the durations of a simulation.
type queueModel struct {
	servers, limit int // limit is how many can wait
	waited         time.Duration
	admitted       int
	rejected       int
}

// run runs the arrivals of an open load, which the service takes latency for. Kiefer and Wolfowitz (1955) have the
// recursion: an arrival is served when the first server is free.
func (m *queueModel) run(load Load, latency Durations, seed uint64) {
	var pcg rand.PCG
	free := make([]time.Duration, m.servers) // when each server is free
	var begins []time.Duration               // of the admitted, ascending
	arrivals, last := newArrivals(&load, seed), time.Duration(0)
	for i := 0; ; i++ {
		q, ok, err := arrivals.next()
		if err != nil || !ok {
			return
		}
		at := max(last+1, q.At+time.Duration(1+i%phases))
		last = at
		slices.Sort(free)
		begin := max(at, free[0])
		if waiting, _ := slices.BinarySearch(begins, at+1); begin > at && len(begins)-waiting >= m.limit {
			m.rejected++
			continue
		}
		reseed(&pcg, seed, serviceStream, uint64(i)<<16+1)
		free[0] = begin + latency.Duration(rand.New(&pcg))
		if begins = append(begins, begin); len(begins) > 100_000 {
			begins = slices.Clone(begins[50_000:])
		}
		m.admitted++
		m.waited += begin - at
	}
}

func (m *queueModel) meanWait() time.Duration { return m.waited / time.Duration(m.admitted) }

// erlangC returns the mean wait of an M/M/c queue for a service time of 1: C(c, a) / (c - a).
func erlangC(c int, a float64) float64 {
	b := 1.0
	for i := 1; i <= c; i++ {
		b = a * b / (float64(i) + a*b) // Erlang's B
	}
	wait := b / (1 - a/float64(c)*(1-b)) // the probability of a wait
	return wait / (float64(c) - a)
}

// lostShare returns the share of arrivals that find an M/M/c/K queue full, K being c plus what can wait.
func lostShare(c, waiting int, a float64) float64 {
	p, sum := 1.0, 1.0
	for n := 1; n <= c+waiting; n++ {
		p *= a / float64(min(n, c))
		sum += p
	}
	return p / sum
}

const meanService = 10 * time.Millisecond

// queueScenario has servers that are busy for a share of the time, in front of which a limit can wait.
func queueScenario(servers, limit int, busy float64, requests int) Scenario {
	rate := busy * float64(servers) / meanService.Seconds()
	return Scenario{
		Config: config(fmt.Sprintf("pipelines: {p: {strategies: [{rate_limiter: {concurrency: {permit_limit: %d, queue_limit: %d}}}]}}", servers, limit)),
		Load: Load{
			For:  time.Duration(float64(requests) / rate * 1e9),
			Open: &Open{Rate: ConstantRate{rate}, Poisson: true},
		},
		Service:     Service{Latency: Exponential{meanService}},
		MaxInFlight: 1 << 20,
		Seed:        1,
	}
}

var queues = []struct {
	servers, limit int
	busy           float64
}{
	{1, 1 << 20, 0.5},
	{1, 1 << 20, 0.8},
	{2, 1 << 20, 0.7},
	{10, 1 << 20, 0.8},
	{40, 1 << 20, 0.8},
	{1, 4, 0.9},
	{3, 3, 1.2},
	{10, 20, 1},
	{5, 0, 0.8},
}

func TestRun_QueueModel(t *testing.T) {
	const requests = 2000
	for _, q := range queues {
		t.Run(fmt.Sprintf("%d servers, %d, busy %v", q.servers, q.limit, q.busy), func(t *testing.T) {
			s := queueScenario(q.servers, q.limit, q.busy, requests)
			r, err := Run(t.Context(), s)
			require.NoError(t, err)
			m := queueModel{servers: q.servers, limit: q.limit}
			m.run(s.Load, s.Service.Latency, s.Seed)
			assert.EqualValues(t, m.admitted, r.Total.Admitted)
			assert.EqualValues(t, m.rejected, r.Total.Rejected)
			assert.EqualValues(t, m.admitted, r.Wait.Count)
			assert.InDelta(t, float64(m.meanWait()), float64(r.Wait.Mean), 1)
		})
	}
}

func TestQueueModel_Theory(t *testing.T) {
	const requests = 100_000
	for _, q := range queues {
		s := queueScenario(q.servers, q.limit, q.busy, requests)
		m := queueModel{servers: q.servers, limit: q.limit}
		m.run(s.Load, s.Service.Latency, s.Seed)
		checkQueue(t, q.servers, q.limit, q.busy, float64(m.meanWait()), float64(m.rejected)/float64(m.rejected+m.admitted))
	}
}

// checkQueue compares what was measured with the formulas. Where nearly none is rejected, the queue has no limit.
func checkQueue(t *testing.T, servers, limit int, busy, wait, rejected float64) {
	t.Helper()
	const tolerance = 0.08
	a := busy * float64(servers)
	name := fmt.Sprintf("%d servers, %d, busy %v", servers, limit, busy)
	if limit < 1000 {
		assert.InEpsilon(t, lostShare(servers, limit, a), rejected, tolerance, name)
	} else {
		assert.InEpsilon(t, erlangC(servers, a)*float64(meanService), wait, tolerance, name)
	}
}

// A closed load with one server is the machine repairman's model: N machines that run for a mean time and then wait for
// the repairman. See Kleinrock, "Queueing Systems" volume 1 (1975), section 3.8.
func TestRun_MachineRepairman(t *testing.T) {
	const requests = 5000.0
	for _, c := range []struct {
		clients, servers int
		think            time.Duration
	}{{5, 1, 50 * time.Millisecond}, {20, 1, 100 * time.Millisecond}, {30, 3, 80 * time.Millisecond}} {
		p, sum, throughput := 1.0, 1.0, 0.0 // p is the probability of n at the service, not yet divided by the sum
		a := meanService.Seconds() / c.think.Seconds()
		for n := 1; n <= c.clients; n++ {
			busy := float64(min(n, c.servers))
			p *= float64(c.clients-n+1) * a / busy
			sum += p
			throughput += p * busy / meanService.Seconds()
		}
		throughput /= sum
		r, err := Run(t.Context(), Scenario{
			Config:  config("pipelines: {p: {strategies: [{timeout: {timeout: 1h}}]}}"),
			Load:    Load{For: time.Duration(requests / throughput * 1e9), Closed: &Closed{Clients: c.clients, Think: Exponential{c.think}}},
			Service: Service{Latency: Exponential{meanService}, Capacity: c.servers},
		})
		require.NoError(t, err)
		measured := float64(r.Total.Succeeded) / r.For.Seconds()
		assert.InEpsilon(t, throughput, measured, 0.03)
		// Little's law: a client thinks or waits for an answer.
		assert.InEpsilon(t, float64(c.clients), measured*(r.Latency.Mean+c.think).Seconds(), 0.03)
		assert.Equal(t, r.Total.Requests, r.Total.Satisfied)
	}
}
