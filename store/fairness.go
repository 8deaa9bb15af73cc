package store

import (
	"time"

	"github.com/weir-go/weir/internal/random"
	"github.com/weir-go/weir/store/backend"
)

// A fairness decides, for one key, when this instance asks the store next and for how many permits, so that the
// instances with waiting callers get about the same number. Those other instances are called rivals. Nothing of it is
// kept in the store, so an instance that dies leaves nothing behind. The zero value knows no rivals. The lock of the
// keyState guards it.
//
// The rule: each instance first takes at most its quota of the permits that come back on a tick,
//
//	quota = share × the permits available at the start of the tick
//
// and what is left after shareTime is free for all (fairnessshare.go). An instance that got its quota the last time asks
// later than the others, by up to maxTurnDelay (fairnessturn.go). Concurrency limiters have no ticks, and only the second
// half of the rule (fairnesslease.go).
//
// A scenario: instances A and B have 30 waiting callers each, and C has one. 24 permits come back every 100 ms, and the
// store's last answer has told all three when. Without the rule, the first to ask takes all 24. It then asks at the
// right moment again, while the others come a little later, so it gets all permits as long as it has waiting callers.
// With the rule:
//
//   - On the tick, each asks for its quota. The first share is 1/8, so that is 3, of which C's caller needs 1.
//   - After shareTime, A and B take what is left, in steps of 3, 6, 12 with a pause after each, so C's next caller gets a
//     permit between two steps.
//   - On the next tick, the shares have changed, as TCP changes a window. A share shrinks by a sixteenth on each tick. It
//     grows by half the fraction that was taken after shareTime. It is halved when the quota was not available. So the
//     shares converge to what the callers of each instance can use.
//   - If one permit comes back at a time, every quota is 1. When A has got the permit, it asks last on the next tick. B
//     and C ask in random order, and the longer they have got none, the earlier they ask.
//
// An instance learns of rivals by permits that are missing in the store and that it has not taken itself. Without
// rivals it asks as soon as permits come back. An instance that always comes first would learn of none; therefore, it
// asks late once in winsBeforeLook times to see whether others ask.
//
// In names, a turn is the moment at which this instance first asks for the permits of a tick, a look is a turn that is
// late without known rivals, and a rest is the time after a quota or a step in which it does not ask.
type fairness struct {
	lastWaited  time.Time   // when a caller last began to wait or was rejected
	rivalsUntil time.Time   // rivals are assumed to wait until then
	observed    answerState // the answer of the last call of observe

	// unexplained is how many permits are missing because of rivals, or of another call of this instance whose answer
	// has not been observed yet. unexplainedAt is when that was first seen.
	unexplained   int64
	unexplainedAt time.Time

	share     float64 // the fraction of a tick's permits that this instance takes first; 0: the first share
	shortfall float64 // how many permits fewer than its quotas it got lately
	tick      tickAccount
	restUntil time.Time // end of a rest: this instance has taken what is allowed for now, and asks for no more until then

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
	if d := f.observed.def; d != nil && d.Kind != backend.KindConcurrency {
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
	state    backend.State
	now      int64     // the store's clock
	sent     time.Time // when the call was sent
	own      int64     // how many more permits are missing because of this instance
	rejected bool      // this instance has asked for more than was available
	alone    bool      // no other call of this instance was under way
}

// observe takes an answer of the store, and updates what is known of rivals and of this tick.
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
	continues := last.def != nil && last.def.SameSchedule(d) && last.def.Permits == d.Permits
	if continues && o.now < last.now {
		if o.sent.Before(last.got) { // a later answer has come first
			f.tick.taken += max(o.own, 0)
			f.unexplained = max(f.unexplained-o.own, 0)
			return
		}
		continues = false // the server's clock was set back
	}
	if f.unexplained > 0 && o.sent.After(f.unexplainedAt) {
		f.observeRival(d, now) // the answers to all own calls of that time are in
	}
	f.observed = answerState{def: d, state: o.state, now: o.now, got: now}
	before := o.state // the state before this instance's requests, if rivals have taken no permits
	if before.Missing -= o.own; continues {
		before = d.Advance(last.state, o.now)
	}
	if !continues || o.state.Tick != f.tick.number {
		f.startTick(o.state.Tick, freePermits(d, before))
	}
	f.tick.taken += max(o.own, 0)
	f.observeOthers(o.state.Missing-o.own-before.Missing, o, now)
	f.adjustShare(o, now)
}

// observeOthers is called with the number of permits that are missing since the last answer, without the permits that
// this instance's requests in the call have taken.
func (f *fairness) observeOthers(others int64, o observation, now time.Time) {
	switch {
	case others > 0 && o.alone:
		f.observeRival(o.def, now)
	case others > 0:
		if f.unexplained == 0 {
			f.unexplainedAt = now
		}
		f.unexplained += others
	}
}

// observeRival is called when a rival has taken permits.
func (f *fairness) observeRival(d *backend.Definition, now time.Time) {
	f.unexplained = 0
	f.rivalUntil(now.Add(min(max(4*fullAfter(d), time.Second), 30*time.Second)))
}
