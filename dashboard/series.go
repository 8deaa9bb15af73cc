package dashboard

import (
	"time"

	"github.com/weir-go/weir/internal/ask"
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/pipeline"
)

const (
	// columns and columnLength make the history of a limiter: five minutes.
	columns      = 50
	columnLength = 6 * time.Second
	// quietAfter is how long a limiter has not rejected when its trouble is over.
	quietAfter = 10 * time.Second
)

// A limiterSeries is the past of one limiter.
type limiterSeries struct {
	limiter           any
	statistics        ask.Asker[limiter.Statistics]
	keys              ask.Asker[keysAnswer]
	at                time.Time // of the last reading; zero: there is none
	granted, rejected int64
	grantedRate       rateMeter
	rejectedRate      rateMeter
	history           [columns]column
	columnAt          int64     // the number of the newest column
	rejecting         time.Time // since when it rejects; zero: it does not
	lastRejection     time.Time
}

// add adds a reading. granted is nil if the limiter does not count what it grants.
func (s *limiterSeries) add(now time.Time, granted *int64, rejected int64) {
	at := now.UnixNano() / int64(columnLength)
	for i := max(s.columnAt+1, at-columns+1); i <= at; i++ {
		s.history[i%columns] = column{}
	}
	s.columnAt = at
	if !s.at.IsZero() && now.Sub(s.at) <= columnLength { // after a pause it is not known when it was
		c := &s.history[at%columns]
		c.Rejected = new(orZero(c.Rejected) + max(rejected-s.rejected, 0))
		if granted != nil {
			c.Granted = new(orZero(c.Granted) + max(*granted-s.granted, 0))
		}
		if rejected > s.rejected {
			s.lastRejection = now
			if s.rejecting.IsZero() {
				s.rejecting = now
			}
		}
	}
	if now.Sub(s.lastRejection) > quietAfter {
		s.rejecting = time.Time{}
	}
	s.at, s.rejected = now, rejected
	s.rejectedRate.add(now, rejected)
	if granted != nil {
		s.granted = *granted
		s.grantedRate.add(now, *granted)
	}
}

// columnsInOrder returns the history, the oldest column first.
func (s *limiterSeries) columnsInOrder() []column {
	all := []column{}
	for i := s.columnAt - columns + 1; i <= s.columnAt && !s.at.IsZero(); i++ {
		all = append(all, s.history[i%columns])
	}
	return all
}

// orZero returns a figure, or 0 if it is not known.
func orZero[T int64 | float64](n *T) T {
	if n == nil {
		return 0
	}
	return *n
}

// A rateMeter computes a rate from the last readings of a count. The zero rateMeter has none. A pause, or a count that
// began at 0 again, begins a new series of readings: the rate of a page is that of the last seconds.
type rateMeter struct {
	at    [6]time.Time
	count [6]int64
	n     int // readings so far
}

// add adds a reading.
func (r *rateMeter) add(at time.Time, count int64) {
	if last := (r.n + len(r.at) - 1) % len(r.at); r.n > 0 && (at.Sub(r.at[last]) > columnLength || count < r.count[last]) {
		r.n = 0
	}
	r.at[r.n%len(r.at)], r.count[r.n%len(r.at)] = at, count
	r.n++
}

// perSecond returns the rate between the oldest and the newest reading, or nil if there are not two.
func (r *rateMeter) perSecond() *float64 {
	if r.n < 2 {
		return nil
	}
	newest, oldest := (r.n-1)%len(r.at), max(r.n-len(r.at), 0)%len(r.at)
	d := r.at[newest].Sub(r.at[oldest]).Seconds()
	if d <= 0 {
		return nil
	}
	return new(float64(r.count[newest]-r.count[oldest]) / d)
}

const (
	// tick is the time between two samples, and between two updates of a page.
	tick = 2 * time.Second
	// watched is for how long the dashboard goes on asking for everything after a page was asked for.
	watched = 10 * time.Second
	// answerTimeout bounds the wait for the program's limiters, strategies and jobs.
	answerTimeout = time.Second
	// checkTimeout bounds what a page waits for, such as a check or one limiter of jobs; see actionTimeout for actions.
	checkTimeout = 5 * time.Second
)

// maxSampled bounds the limiters that have rates and a history, and the circuits whose changes are noticed.
const maxSampled = 1000

// A sampler keeps what one reading does not tell: earlier counts, and since when something is as it is.
type sampler struct {
	options   *Options
	started   time.Time
	limiters  map[string]*limiterSeries
	circuits  map[pipeline.Source]circuitSeries
	pipelines map[string]*pipelineSeries
	stores    map[string]*rateMeter
	jobs      ask.Asker[jobsAnswer]
}

func newSampler(o *Options) *sampler {
	s := &sampler{options: o, started: time.Now(), stores: map[string]*rateMeter{}}
	for name := range o.Stores {
		s.stores[name] = &rateMeter{}
	}
	return s
}

// A keysAnswer is the answer of a [custom.RejectionCounter].
type keysAnswer struct {
	top   []keyState
	total int64 // the rejections of all keys
}

// A pipelineSeries is what is known of the strategies of one pipeline.
type pipelineSeries struct {
	describe    ask.Asker[description]
	version     int
	at          time.Time
	description description
	note        string // what is wrong with the description
}

// A description is what the strategies of a pipeline say about themselves.
type description []strategyState

// A circuitSeries is the past of one circuit.
type circuitSeries struct {
	state string
	since time.Time // zero: before the first look
}

// A jobsAnswer is the answer of [Jobs.Limiters].
type jobsAnswer struct {
	limiters []JobLimiter
	err      error
}
