package circuitbreaker_test

import (
	"slices"
	"time"

	"github.com/weir-go/weir/strategies/circuitbreaker"
)

// A naive circuit is what the tests compare with: it remembers everything, and
// adds it all up whenever it is asked.
type naive struct {
	o        circuitbreaker.Options
	state    circuitbreaker.State
	phase    int       // counts transitions
	began    time.Time // of the phase
	outcomes []naiveOutcome
	row      int64
	until    time.Time
	probes   []naiveProbe // the longest running first
	healthy  int          // probes that have succeeded
	log      []string
}

type naiveOutcome struct {
	at     time.Time
	failed bool
}

type naiveProbe struct {
	id    int
	since time.Time
}

func (n *naive) enter(state circuitbreaker.State) {
	if n.state != state {
		n.log = append(n.log, n.state.String()+">"+state.String())
	}
	*n = naive{o: n.o, state: state, phase: n.phase + 1, began: time.Now(), log: n.log}
}

func (n *naive) open() {
	n.enter(circuitbreaker.Open)
	n.until = n.began.Add(n.o.BreakDuration)
}

// start returns whether execution id may run, and if not, for how long if that is known.
func (n *naive) start(id int) (ok bool, wait time.Duration) {
	now := time.Now()
	if n.state == circuitbreaker.Open && !now.Before(n.until) {
		n.enter(circuitbreaker.HalfOpen)
	}
	switch n.state {
	case circuitbreaker.Closed:
		return true, 0
	case circuitbreaker.Open:
		return false, n.until.Sub(now)
	case circuitbreaker.Isolated:
		return false, 0
	}
	if n.untilPlace() > 0 {
		return false, 0
	}
	for n.healthy+len(n.probes) >= n.o.HalfOpenProbes {
		n.probes = n.probes[1:]
	}
	n.probes = append(n.probes, naiveProbe{id, now})
	return true, 0
}

// untilPlace returns how long a half-open circuit has no place for another probe.
func (n *naive) untilPlace() time.Duration {
	tooMany := n.healthy + len(n.probes) - n.o.HalfOpenProbes
	if tooMany < 0 {
		return 0
	}
	return max(n.o.BreakDuration-time.Since(n.probes[tooMany].since), 0)
}

// finish tells how an execution ended that was started in that phase.
func (n *naive) finish(id, phase int, failed, counts bool) {
	switch {
	case phase != n.phase:
	case n.state == circuitbreaker.HalfOpen:
		n.probes = slices.DeleteFunc(slices.Clone(n.probes), func(p naiveProbe) bool { return p.id == id })
		if failed {
			n.open()
		} else if counts {
			if n.healthy++; n.healthy == n.o.HalfOpenProbes {
				n.enter(circuitbreaker.Closed)
			}
		}
	case counts:
		n.outcomes = append(n.outcomes, naiveOutcome{time.Now(), failed})
		n.row++
		if !failed {
			n.row = 0
		} else if n.tooMany() {
			n.open()
		}
	}
}

func (n *naive) tooMany() bool {
	throughput, failures := n.window()
	inARow := n.o.ConsecutiveFailures > 0 && n.row >= int64(n.o.ConsecutiveFailures)
	return inARow || n.o.FailureRatio > 0 && throughput >= int64(n.o.MinimumThroughput) &&
		float64(failures)/float64(throughput) >= n.o.FailureRatio
}

func (n *naive) window() (throughput, failures int64) {
	step := n.o.SamplingDuration / 10
	tenth := func(at time.Time) time.Duration { return at.Sub(n.began) / step }
	for _, o := range n.outcomes {
		if n.o.FailureRatio > 0 && tenth(o.at) > tenth(time.Now())-10 {
			throughput++
			if o.failed {
				failures++
			}
		}
	}
	return throughput, failures
}

func (n *naive) statistics() circuitbreaker.Statistics {
	s := circuitbreaker.Statistics{State: n.state, Probes: len(n.probes)}
	switch n.state {
	case circuitbreaker.Closed:
		s.Throughput, s.Failures = n.window()
		if n.o.ConsecutiveFailures > 0 {
			s.ConsecutiveFailures = n.row
		}
	case circuitbreaker.Open:
		if s.RetryAfter = max(time.Until(n.until), 0); s.RetryAfter == 0 {
			s.State = circuitbreaker.HalfOpen // the next execution makes it so
		}
	case circuitbreaker.HalfOpen:
		s.RetryAfter = n.untilPlace()
	}
	return s
}
