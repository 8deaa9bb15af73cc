package store

import (
	"time"

	"github.com/weir-go/weir/internal/random"
	"github.com/weir-go/weir/rate"
	"github.com/weir-go/weir/store/backend"
)

// A fairness decides, for one key, when this instance asks the store next and for how many permits, so that the
// instances with waiting callers get about the same number. Those other instances are called rivals. Nothing of it is
// kept in the store, so an instance that dies leaves nothing behind. The zero value knows no rivals. The lock of the
// keyState guards it.
//
// The rule: each instance first takes at most its quota of the permits that come back on a line,
//
//	quota = share × the permits available at the start of the line
//
// and what is left after shareTime is free for all (fairnessshare.go). An instance that got its quota the last time asks
// later than the others, by up to maxTurnDelay (fairnessturn.go). Concurrency limiters have no lines, and only the second
// half of the rule (fairnesslease.go).
//
// A scenario: instances A and B have 30 waiting callers each, and C has one. 24 permits come back every 100 ms, and the
// store's last answer has told all three when. Without the rule, the first to ask takes all 24. It then asks at the
// right moment again, while the others come a little later, so it gets all permits as long as it has waiting callers.
// With the rule:
//
//   - On the line, each asks for its quota. The first share is 1/8, so that is 3, of which C's caller needs 1.
//   - After shareTime, A and B take what is left, in steps of 3, 6, 12 with a pause after each, so C's next caller gets a
//     permit between two steps.
//   - On the next line, the shares have changed, as TCP changes a window. A share shrinks by a sixteenth on each line. It
//     grows by half the fraction that was taken after shareTime. It is halved when the quota was not available. So the
//     shares converge to what the callers of each instance can use.
//   - If one permit comes back at a time, every quota is 1. When A has got the permit, it asks last on the next line. B
//     and C ask in random order, and the longer they have got none, the earlier they ask.
//
// An instance learns of rivals by permits that are missing in the store and that it has not taken itself, in whatever
// order its answers come. Without rivals it asks as soon as permits come back. An instance that always comes first would
// learn of none; therefore, it asks late once in winsBeforeLook times to see whether others ask.
//
// In names, a turn is the moment at which this instance first asks for the permits of a line, a look is a turn that is
// late without known rivals, and a rest is the time after a quota or a step in which it does not ask.
type fairness struct {
	lastWaited  time.Time   // when a caller last began to wait or was rejected
	rivalsUntil time.Time   // rivals are assumed to wait until then
	observed    answerState // the answer of the last call of observe

	unexplained unexplainedPermits

	share     float64 // the fraction of a line's permits that this instance takes first; 0: the first share
	shortfall float64 // how many permits fewer than its quotas it got lately
	line      lineAccount
	restUntil time.Time // end of a rest: this instance has taken what is allowed for now, and asks for no more until then

	tookAt        time.Time // when this instance last got permits
	nextTurn      time.Time // this instance does not ask before its turn, so that rivals ask first
	everWon       bool      // this instance has won a turn: it got its quota
	losses        int       // turns since the last win
	winsUnopposed int       // turns won in a row without learning of a rival
	lastLook      time.Time // of a look: when this instance last asked late without knowing a rival

	leases leaseTurns

	rtt    time.Duration // duration of a call: follows shorter ones at once, and longer ones slowly
	random *random.Source
}

const (
	// trackFor is how long rivals are tracked after a caller has begun to wait; maxTrackFor bounds it for limiters whose
	// permits come back rarely.
	trackFor    = 5 * time.Second
	maxTrackFor = 2 * time.Minute
)

// tracks reports whether rivals are tracked: until trackFor has passed and permits have come back twice.
func (f *fairness) tracks(now time.Time) bool {
	window := trackFor
	if d := f.observed.def; d != nil && d.Kind != rate.Concurrency {
		window = max(window, min(3*duration(d.Period), maxTrackFor))
	}
	return now.Sub(f.lastWaited) < window
}

// startWaiting is called when a caller begins to wait.
func (f *fairness) startWaiting(now time.Time) {
	if !f.tracks(now) {
		*f = fairness{random: f.random} // what was taken meanwhile was not observed
	}
	f.lastWaited = now
}

// hasRivals reports whether rivals are known. If no caller of this instance was rejected lately, there is enough for
// all, and other instances are no rivals.
func (f *fairness) hasRivals(now time.Time) bool { return f.tracks(now) && now.Before(f.rivalsUntil) }

func (f *fairness) rivalUntil(until time.Time) {
	f.rivalsUntil = until
	f.winsUnopposed = 0
}

// An observation is what the store's answer says about a bucket or window.
type observation struct {
	def      *backend.Definition
	state    rate.State
	now      int64     // the store's clock
	sent     time.Time // when the call was sent
	own      int64     // how many more permits are missing because of this instance
	rejected bool      // this instance has asked for more than was available
	// pending is when the oldest call of this instance was sent that has no answer yet, or an earlier moment if that is not
	// known; zero if there is no such call.
	pending time.Time
}

// unexplainedPermits are missing in the store, and no answer says that this instance has taken them. They were taken by
// rivals or by calls of this instance that have no answer yet, because answers can come in any order. The rule: what was
// missing at a moment until is counted as taken by rivals when every call that was sent before the answer of that moment
// came has been answered.
type unexplainedPermits struct {
	until  int64     // by the store's clock
	came   time.Time // when the answer of that moment came
	before int64     // missing at until
	since  int64     // that are missing since then
}

// observe takes an answer of the store, and updates what is known of rivals and of this line.
func (f *fairness) observe(o observation, now time.Time) {
	if o.rejected {
		f.lastWaited = now
	}
	if took := now.Sub(o.sent); f.rtt == 0 || took < f.rtt {
		f.rtt = took
	} else {
		f.rtt += (took - f.rtt) / 8
	}
	last, d := f.observed, o.def
	continues := last.def != nil && last.def.SameLines(&d.Schedule) && last.def.Permits == d.Permits
	if continues && o.now < last.now {
		if o.sent.Before(last.got) { // a later answer has come first
			f.took(o.own, now)
			f.unexplained.explain(o)
			f.settle(o, now)
			return
		}
		continues = false // the server's clock was set back
	}
	f.observed = answerState{def: d, state: o.state, now: o.now, got: now}
	before := o.state // the state before this instance's requests, if rivals have taken no permits
	if before.Missing -= o.own; continues {
		before = d.Advanced(last.state, o.now)
	}
	if !continues {
		f.unexplained = unexplainedPermits{until: o.now, came: now}
	}
	if !continues || o.state.Line != f.line.number {
		f.startLine(o.state.Line, d.Free(&before))
	}
	f.took(o.own, now)
	f.unexplained.since += o.state.Missing - o.own - before.Missing
	f.settle(o, now)
	f.adjustShare(o, now)
}

// took is called with what this instance's requests have taken.
func (f *fairness) took(own int64, now time.Time) {
	if own > 0 {
		f.line.taken += own
		f.tookAt = now
	}
}

// explain is called with an answer that comes after the answer of a later moment.
func (u *unexplainedPermits) explain(o observation) {
	if o.now <= u.until {
		u.before -= o.own
	} else {
		u.since -= o.own
	}
}

// settle counts what must have been taken by rivals.
func (f *fairness) settle(o observation, now time.Time) {
	u := &f.unexplained
	var rivals int64
	switch {
	case o.pending.IsZero():
		rivals = u.before + u.since
		u.before, u.since = 0, 0
	case o.pending.Before(u.came):
		return
	default:
		rivals = u.before
		u.before, u.since = u.since, 0
	}
	u.until, u.came = f.observed.now, now
	if rivals > 0 {
		f.observeRival(o.def, now)
	}
}

// observeRival is called when a rival has taken permits.
func (f *fairness) observeRival(d *backend.Definition, now time.Time) {
	f.rivalUntil(now.Add(min(max(4*fullAfter(d), time.Second), 30*time.Second)))
}
