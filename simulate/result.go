package simulate

import (
	"math"
	"math/bits"
	"slices"
	"time"

	"github.com/weir-go/weir/internal/saturate"
)

// A Result is what happened in a simulation. All times in it are counted from the beginning of the simulation. Its JSON form
// is for programs, and has durations in nanoseconds. A Result is safe for concurrent use as long as it is not changed.
type Result struct {
	// Name is what comparisons and pictures of several results call this one, such as the name of a file. [Run] leaves it
	// empty, for the program to set.
	Name string `json:"name,omitempty"`
	// Pipeline is the pipeline that the requests went through.
	Pipeline string `json:"pipeline"`
	// Seed is that of the Scenario.
	Seed uint64 `json:"seed"`
	// For is how long requests arrived.
	For time.Duration `json:"for"`
	// Instances is how many instances of the program there were.
	Instances int `json:"instances"`
	// Ended is when the last request ended.
	Ended time.Duration `json:"ended"`
	// Assumed has what the simulation assumed of things that only the program has, a sentence each, sorted.
	Assumed []string `json:"assumed,omitempty"`
	// Total counts everything.
	Total Counts `json:"total"`
	// Latency is how long executions took that succeeded, in the pipeline, the service and all waits.
	Latency Quantiles `json:"latency"`
	// Wait is how long executions waited for a permit that they got. An execution that got it at once counts as 0.
	Wait Quantiles `json:"wait"`
	// Service is how long the service took for its calls once it served them, without their wait for its capacity. No limit
	// can make that shorter.
	Service Quantiles `json:"service"`
	// Interval is the length of the elements of Series.
	Interval time.Duration `json:"interval"`
	// Series is what happened over time, from the beginning to the end of the last request.
	Series []Point `json:"series"`
	// Rejections counts the rejections by the strategy that rejected, such as "orders/RateLimiter".
	Rejections map[string]int64 `json:"rejections,omitempty"`
	// Failures counts the executions that failed by the reason: the strategy, such as "orders/Timeout" or
	// "orders/Chaos.Fault", or one of "the service failed", "the service was full", "the client left", "cut off" and "other".
	Failures map[string]int64 `json:"failures,omitempty"`
	// Keys compares the keys of the requests.
	Keys KeyResult `json:"keys"`
	// Most has, for each of Scenario.Windows, the most permits that passed in any window of that length.
	Most []Most `json:"most,omitempty"`

	satisfied bitset // the requests that succeeded in the end, by their numbers
	open      bool   // the n-th request is the same in another run with this load
	closed    bool   // the load is closed; if neither, the Result was read from JSON
	keyed     map[string]*keyCounts
}

// Counts are what happened, in the whole simulation or a part of it. An execution is one pass of a request through the
// pipeline; a client that tries again executes the pipeline again.
type Counts struct {
	// Requests is how many requests clients had, however often they tried.
	Requests int64 `json:"requests"`
	// Offered is how many executions began.
	Offered int64 `json:"offered"`
	// Admitted is how many executions reached the service.
	Admitted int64 `json:"admitted"`
	// Queued is how many executions waited for a permit, whether they got it or not. Up to 3 ms for the answer of a store,
	// and 6 ms with hundreds of instances, are not counted as a wait.
	Queued int64 `json:"queued"`
	// Rejected is how many executions ended with a rejection by a limiter, a circuit breaker or another strategy. A timeout
	// is no rejection.
	Rejected int64 `json:"rejected"`
	// Succeeded is how many executions ended without an error.
	Succeeded int64 `json:"succeeded"`
	// Failed is how many executions ended with another error than a rejection, such as a timeout.
	Failed int64 `json:"failed"`
	// Calls is how many calls the service got.
	Calls int64 `json:"calls"`
	// Retried is how many of Calls were not the first of their execution: retries and hedges of the pipeline.
	Retried int64 `json:"retried"`
	// TriedAgain is how many of Offered were not the first of their request: retries by clients.
	TriedAgain int64 `json:"tried_again"`
	// Satisfied is how many requests succeeded in the end.
	Satisfied int64 `json:"satisfied"`
	// Unfinished is how many requests had not ended when the simulation was cut off, see [Run].
	Unfinished int64 `json:"unfinished,omitempty"`
}

// A Point is what happened in one interval. An execution is counted as offered in the interval in which it began, and as
// succeeded, failed or rejected in the one in which it ended.
type Point struct {
	// At is when the interval begins.
	At time.Duration `json:"at"`
	Counts
	// Waiting is the most executions that waited for a permit at the same time.
	Waiting int64 `json:"waiting"`
	// Running is the most calls that the service had at the same time, those in its own queue included.
	Running int64 `json:"running"`
	// Latency is how long executions took that succeeded in the interval.
	Latency Quantiles `json:"latency"`
}

// Quantiles describe lengths of time. The quantiles are exact to one part in a hundred, and have no digits beyond that; Mean
// and Max are exact.
type Quantiles struct {
	// Count is how many lengths of time there are. If there are none, everything is 0.
	Count int64 `json:"count"`
	// Mean is their mean.
	Mean time.Duration `json:"mean"`
	// P50 is the length that half of them do not exceed, P90 the one that nine of ten do not exceed, and so on.
	P50  time.Duration `json:"p50"`
	P90  time.Duration `json:"p90"`
	P95  time.Duration `json:"p95"`
	P99  time.Duration `json:"p99"`
	P999 time.Duration `json:"p999"`
	// Max is the longest.
	Max time.Duration `json:"max"`
}

// A KeyResult compares what the keys of the requests got. The fair share of a key is max-min fair: what the key would get if
// all that was admitted were given out evenly, and no key got more than it asked for.
type KeyResult struct {
	// Count is how many keys there were.
	Count int `json:"count"`
	// Jain is Jain's index of what keys got relative to their fair shares: 1 if each got its share, 1/n if one of n keys
	// got everything, and 0 if nothing was admitted that could be compared. See Jain, Chiu and Hawe, "A Quantitative Measure of Fairness" (1984).
	Jain float64 `json:"jain"`
	// Starved is how many keys got nothing although their fair share was at least one execution.
	Starved int `json:"starved"`
	// Worst has the keys that got least relative to their fair shares, the worst first, at most ten.
	Worst []KeyCounts `json:"worst,omitempty"`
	// MostOffered has the keys with the most executions, and MostRejected those of which most were rejected, at most ten
	// each; none if there is only one key.
	MostOffered  []KeyCounts `json:"most_offered,omitempty"`
	MostRejected []KeyCounts `json:"most_rejected,omitempty"`
	// Unkept is how many executions had other keys than the first million. Only the first million keys are compared.
	Unkept int64 `json:"unkept,omitempty"`
}

// KeyCounts are what a key got, in executions as [Counts] has them.
type KeyCounts struct {
	// Key is the key.
	Key      string `json:"key"`
	Offered  int64  `json:"offered"`
	Admitted int64  `json:"admitted"`
	Rejected int64  `json:"rejected"`
	// Fair is how many executions are the fair share of the key, see [KeyResult].
	Fair float64 `json:"fair"`
}

// Most is the most permits that passed in any window of one length.
type Most struct {
	// Window is how long the window is. An instant at its beginning is in it, one at its end is not.
	Window time.Duration `json:"window"`
	// Permits is the largest number of permits, and At when the first window with so many begins. The permits of a call are
	// what the limiter of its pipeline granted, when the call reaches the service: of several limiters the largest number,
	// without a limiter 1, and at most 2³⁰.
	Permits int64         `json:"permits"`
	At      time.Duration `json:"at"`
	// Key is the key that took most in any window, KeyPermits how many it took, and KeyAt when that window begins.
	Key        string        `json:"key"`
	KeyPermits int64         `json:"key_permits"`
	KeyAt      time.Duration `json:"key_at"`
}

type keyCounts struct{ offered, admitted, rejected int64 }

// A resampled is the series of a Result in longer intervals, so that a chart has no more than it can show.
type resampled struct {
	points []Point
	each   int           // how many successive points are one interval
	step   time.Duration // how long an interval is
}

// resampled returns the series in at most limit intervals.
func (r *Result) resampled(limit int) resampled {
	each := max((len(r.Series)+limit-1)/limit, 1)
	return resampled{r.Series, each, saturate.Mul(max(r.Interval, 1), time.Duration(each))}
}

// rates returns a count per second in each interval.
func (s resampled) rates(count func(*Point) int64) []float64 {
	var rates []float64
	for points := range slices.Chunk(s.points, s.each) {
		sum := int64(0)
		for i := range points {
			sum += count(&points[i])
		}
		rates = append(rates, float64(sum)/s.step.Seconds())
	}
	return rates
}

// most returns the largest value of a point in each interval, or NaN if no point has one. Of a quantile, that is an upper
// bound of what it is in the interval.
func (s resampled) most(value func(*Point) float64) []float64 {
	var most []float64
	for points := range slices.Chunk(s.points, s.each) {
		largest := math.NaN()
		for i := range points {
			if v := value(&points[i]); !(v <= largest) && !math.IsNaN(v) {
				largest = v
			}
		}
		most = append(most, largest)
	}
	return most
}

// A bitset has a bit for each request, by its number.
type bitset []uint64

// set sets bit i, and makes the bitset larger where it must be.
func (b *bitset) set(i int64) {
	for int64(len(*b)) <= i/64 {
		*b = append(*b, 0)
	}
	(*b)[i/64] |= 1 << (i % 64)
}

func (b bitset) without(o bitset) int64 {
	n := 0
	for i, word := range b {
		if i < len(o) {
			word &^= o[i]
		}
		n += bits.OnesCount64(word)
	}
	return int64(n)
}
