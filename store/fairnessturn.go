package store

import (
	"time"

	"github.com/weir-go/weir/internal/saturate"
	"github.com/weir-go/weir/rate"
	"github.com/weir-go/weir/store/backend"
)

const (
	// maxTurnDelay bounds how much later an instance asks because of rivals.
	maxTurnDelay = 50 * time.Millisecond
	// winsBeforeLook is how many wins in a row make an instance look for rivals; lookInterval is the least time between
	// two looks.
	winsBeforeLook = 8
	lookInterval   = 250 * time.Millisecond
)

// maxDelay returns the most by which this instance asks later. It is short enough that the limiter is not full meanwhile,
// which would waste permits.
func (f *fairness) maxDelay(d *backend.Definition) time.Duration {
	if f.far(d) {
		return min(f.rtt, spoilTime(d)/4, maxTurnDelay)
	}
	return min(shareTime(d)/2, maxTurnDelay)
}

// far reports whether shareTime is too short for quotas, because it takes a few round trips to take a quota and then what
// is left. Then each instance takes all that it needs in its turn.
func (f *fairness) far(d *backend.Definition) bool { return 4*f.rtt > shareTime(d) }

// spoilTime returns how long after a line permits are lost that were not taken: the bucket is full, the fixed window is
// over, or a segment of the sliding window, so that the permits come back a segment later.
func spoilTime(d *backend.Definition) time.Duration {
	if d.Kind == rate.TokenBucket {
		return fullAfter(d)
	}
	return duration(d.Period)
}

// lead returns how much earlier a request must be sent, so that it arrives when permits come back; 0 if that is not worth
// more calls, because they are not lost meanwhile. The time until then is counted from when the last answer came, half a
// round trip after the decision, and the request takes the other half. A request that arrives too early costs another
// round trip, so the lead is a little shorter.
func (f *fairness) lead(d *backend.Definition) time.Duration {
	if 4*f.rtt < spoilTime(d) {
		return 0
	}
	return max(f.rtt-f.rtt/16-time.Millisecond, 0)
}

// gatherPause returns how long a request to a far store is held back for the callers that were served just now and come
// back at once. Without it they would miss that request and wait for two round trips, so that half of the callers would
// share each of them.
func (f *fairness) gatherPause() time.Duration {
	if p := f.rtt / 16; p >= time.Millisecond {
		return p
	}
	return 0
}

// nextPause returns how long to wait if permits come back after backIn, and ends a turn.
func (f *fairness) nextPause(d *backend.Definition, backIn time.Duration, now time.Time) time.Duration {
	if d == nil || backIn <= 0 {
		return backIn
	}
	// The answer that ends a turn at a far store can be of a later line than the permits of that turn.
	took := f.line.taken > 0 || now.Sub(f.tookAt) < 2*f.rtt
	won := took && f.line.taken >= f.line.quota
	f.countTurn(won)
	yields := f.yields(won, now)
	backIn = max(backIn-f.lead(d), min(backIn, f.gatherPause()))
	if !yields && !f.hasRivals(now) {
		return backIn
	}
	wait := saturate.Add(backIn, f.delay(f.maxDelay(d), yields))
	if wait <= maxShareTime {
		f.nextTurn = now.Add(wait)
	}
	return wait
}

func (f *fairness) countTurn(won bool) {
	f.losses++
	if won {
		f.losses, f.everWon = 0, true
	}
}

// yields reports whether the instance asks late at its next turn: to let its rivals ask first or, after winsBeforeLook
// wins without a known rival, to look for rivals. yields counts these wins. won reports whether the last turn was won.
func (f *fairness) yields(won bool, now time.Time) bool {
	switch {
	case !won:
		f.winsUnopposed = 0
		return false
	case f.hasRivals(now):
		return true
	}
	if f.winsUnopposed++; !f.lookDue(f.winsUnopposed, now) {
		return false
	}
	f.winsUnopposed, f.lastLook = 0, now
	return true
}

func (f *fairness) lookDue(wins int, now time.Time) bool {
	return wins >= winsBeforeLook && now.Sub(f.lastLook) >= lookInterval
}

// delay returns how much later the instance asks: after the first third of most if it yields, else in it, and
// the earlier the more turns it has lost.
func (f *fairness) delay(most time.Duration, yields bool) time.Duration {
	third := most / 3
	random := f.random.UpTo(third + 1)
	switch {
	case yields:
		return third + 2*random
	case !f.everWon:
		return 0
	default:
		return random / time.Duration(1+f.losses)
	}
}

// turnLeft returns for how long the instance does not ask because of rivals. A turn more than maxTurnDelay ahead is on a
// later line. It is ignored, because a caller that comes now may find permits of this line.
func (f *fairness) turnLeft(now time.Time) time.Duration {
	left := f.nextTurn.Sub(now)
	if left > maxTurnDelay {
		left = 0
	}
	return max(left, f.restLeft(now))
}

// restLeft returns the time until restUntil, 0 if there are no rivals.
func (f *fairness) restLeft(now time.Time) time.Duration {
	if !f.hasRivals(now) {
		return 0
	}
	return max(f.restUntil.Sub(now), 0)
}

// newcomerPause returns for how long a new caller that can wait must not ask by itself.
func (f *fairness) newcomerPause(now time.Time) time.Duration {
	if d := f.observed.def; d != nil && f.hasRivals(now) && (f.far(d) || f.hasQuota(now)) {
		return max(f.turnLeft(now), 1) // serveLoop knows when, and how many to ask for
	}
	return f.turnLeft(now)
}
