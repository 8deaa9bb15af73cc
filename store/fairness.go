package store

import (
	"math"
	"math/rand/v2"
	"time"

	"github.com/weir-go/weir/internal/saturate"
	"github.com/weir-go/weir/store/backend"
)

// A fairness knows of the other instances that wait for permits of the same key, called rivals, and decides when this
// instance asks next, and for how many. The lock of its keyState guards it. The zero value knows no rivals.
//
// All instances learn from the store when the next permits come back, and only one gets them. If the winner asked at
// exactly that time again, and the losers spread out to spare the store, the winner would win as long as it has
// waiters. Therefore, an instance that got at least its usual part of the last permits steps back for a moment, and the
// others ask first, in random order.
//
// If more than one permit comes back at once, each instance first takes its part, which starts at an eighth. A moment
// later, what is left is taken in pieces that double, with a pause after each, so that an instance with one caller
// keeps up with one that has thirty. Parts are learned as TCP learns its share of a link: a part that was not available
// is halved, and all parts grow by the same when something is left. So they converge.
//
// Nothing of this is kept in the store, it needs no clock but the server's, and an instance that dies leaves nothing
// behind.
//
// Without rivals, an instance asks at the very moment. An instance finds rivals by permits that are missing in the
// store and that it has not taken itself. One that always wins would find none; therefore, it steps back now and then
// to see whether others ask.
type fairness struct {
	lastWaited  time.Time // when a caller last began to wait; the rest is kept up to date for trackFor
	rivalsUntil time.Time // rivals are assumed to wait until then

	lastAnswer answerState // what the store has said last

	// unexplained is how many permits others seem to have taken, unless it was another call of this instance whose
	// answer is still to come. unexplainedAt is when that was first seen.
	unexplained   int64
	unexplainedAt time.Time

	// part is the fraction of what comes back that this instance takes first. owed is how many permits less than that
	// it has got lately.
	part, owed float64

	// Of the current tick:
	tick      int64
	atStart   int64 // available at its start
	taken     int64 // by this instance
	takenLate int64 // the part of taken that was taken after rivals had their chance
	ownPart   int64 // part in permits; 0: not computed yet
	allowance int64 // what it may have taken by now: ownPart, and later a piece more
	piece     int64 // what allowance grows by next

	losses int  // turns since it had its part
	won    bool // it has had its part at least once

	// For concurrency limiters: what was free at the last answer, how many requests in a row were granted, and since
	// when.
	free   int64
	streak int
	since  time.Time
	rtt    time.Duration

	nextTurn   time.Time // until then the instance leaves the key to its rivals, unless it is woken
	restUntil  time.Time // until then it leaves the rest of a tick's permits to rivals
	winsInRow  int       // turns won in a row without seeing a rival
	lastLooked time.Time // when it last stepped back without knowing a rival
}

const (
	// trackFor is how long rivals are tracked after a caller has begun to wait.
	trackFor = 5 * time.Second
	// maxTrackFor bounds that time for limiters whose permits come back rarely.
	maxTrackFor = 2 * time.Minute
	// maxTurnDelay bounds how much later an instance asks because of rivals.
	maxTurnDelay = 50 * time.Millisecond
	// maxRest bounds how long an instance that has had its part leaves the rest to others.
	maxRest = time.Second
	// minLeaseDelay, maxLeaseDelay and maxPollDelay bound that delay for concurrency limiters: with notices of releases
	// all instances ask at about the same time; without, each polls.
	minLeaseDelay = 2 * time.Millisecond
	maxLeaseDelay = 12 * time.Millisecond
	maxPollDelay  = 75 * time.Millisecond
	// winsBeforeLook is how many wins in a row make an instance look for rivals; lookInterval is the least time between
	// two looks.
	winsBeforeLook = 8
	lookInterval   = 250 * time.Millisecond
	// minPart bounds the part of one among very many instances.
	minPart = 1. / 64
)

// tracks reports whether rivals are tracked: for a while, and until permits have come back twice.
func (r *fairness) tracks(now time.Time) bool {
	window := trackFor
	if d := r.lastAnswer.def; d != nil && d.Kind != backend.KindConcurrency {
		window = max(window, min(3*duration(d.Period), maxTrackFor))
	}
	return now.Sub(r.lastWaited) < window
}

// startWaiting is called when a caller begins to wait.
func (r *fairness) startWaiting(now time.Time) {
	if !r.tracks(now) {
		*r = fairness{} // what was taken meanwhile was not observed
	}
	r.lastWaited = now
}

// hasRivals reports whether rivals are known. If no caller of this instance was rejected lately, there is enough for
// all, and other instances are no rivals.
func (r *fairness) hasRivals(now time.Time) bool { return r.tracks(now) && now.Before(r.rivalsUntil) }

// An observation is an answer of the store.
type observation struct {
	def      *backend.Definition
	state    backend.State
	now      int64     // the store's clock
	sent     time.Time // when the call was sent
	own      int64     // how much more is missing because of this instance
	rejected bool      // the instance has asked for more than was available
	alone    bool      // no other call of this instance was under way
}

// observe enters an answer.
func (r *fairness) observe(a observation, now time.Time) {
	if a.rejected {
		r.lastWaited = now
	}
	last, d, s, storeNow, own := r.lastAnswer, a.def, a.state, a.now, a.own
	same := last.def != nil && last.def.SameSchedule(d) && last.def.Permits == d.Permits
	if same && storeNow < last.now {
		if a.sent.Before(last.got) { // the answer is late
			r.taken += max(own, 0)
			r.unexplained = max(r.unexplained-own, 0)
			return
		}
		same = false // the server's clock was set back
	}
	if r.unexplained > 0 && a.sent.After(r.unexplainedAt) {
		r.observeRival(d, now)
	}
	r.lastAnswer = answerState{def: d, state: s, now: storeNow, got: now}
	before := s
	if before.Missing -= own; same {
		before = d.Advance(last.state, storeNow)
	}
	if !same || s.Tick != r.tick {
		r.startTick(s.Tick, freePermits(d, before))
	}
	r.taken += max(own, 0)
	switch more := s.Missing - own - before.Missing; {
	case more > 0 && a.alone:
		r.observeRival(d, now)
	case more > 0:
		if r.unexplained == 0 {
			r.unexplainedAt = now
		}
		r.unexplained += more
	}
	r.adjustPart(d, storeNow, own, a.rejected, now)
}

// adjustPart changes part by what the instance got of it, and ends the turn once it has had it.
func (r *fairness) adjustPart(d *backend.Definition, storeNow, own int64, rejected bool, now time.Time) {
	if r.allowance == 0 {
		return
	}
	over := d.TickTime(r.tick) + r.leftAfter(d) - storeNow // µs until the rest is for all
	if over <= 0 {
		r.takenLate += max(own, 0)
	}
	switch {
	case over > 0 && rejected && r.taken < r.allowance && r.atStart > 1:
		r.part = max(r.part/2, float64(r.taken)/float64(r.atStart), minPart)
		r.allowance = max(r.taken, 1)
		r.ownPart = r.allowance
	case r.taken < r.allowance || freePermits(d, r.lastAnswer.state) == 0:
	case over > 0:
		// An instance with a small part is the first to take of the rest.
		r.restUntil = now.Add(duration(over) + jitter(float64(shareTime(d))/3*r.part))
	default:
		r.restUntil = now.Add(jitter(float64(shareTime(d)) / 16))
	}
}

// jitter returns d, a quarter more or less at random.
func jitter(d float64) time.Duration { return time.Duration(d * (0.75 + rand.Float64()/2)) }

// startTick starts the accounts of a tick. All parts shrink a little, so that something is left for parts that are too
// small, and grow by half of what was left over.
func (r *fairness) startTick(line, there int64) {
	if r.allowance > 0 && r.atStart > 1 {
		even := r.part * float64(r.atStart)
		r.owed = min(max(r.owed+even-float64(min(r.taken, r.ownPart)), -even), even)
		r.part = min(r.part+min(float64(r.takenLate)/float64(r.atStart)/2, 1./16), 1)
	}
	if r.ownPart > 1 {
		r.part = max(r.part*15/16, minPart)
	}
	r.tick, r.atStart, r.taken, r.takenLate, r.allowance, r.ownPart = line, there, 0, 0, 0, 0
}

// freePermits returns how many permits are available.
func freePermits(d *backend.Definition, s backend.State) int64 { return d.Permits - s.Missing }

// leftAfter returns the µs after a tick from which the rest is for all.
func (r *fairness) leftAfter(d *backend.Definition) int64 { return shareTime(d).Microseconds() }

// shareTime returns how long instances keep to their parts; after that, the rest of a tick's permits is for all.
func shareTime(d *backend.Definition) time.Duration {
	return min(duration(d.Period)/4*3, fullAfter(d)/2, maxRest)
}

// observeLeases enters an answer about a concurrency limiter: others hold that many permits, and that many are free.
func (r *fairness) observeLeases(others, free int64, granted bool, rtt time.Duration, now time.Time) {
	r.free = free
	r.rtt += (rtt - r.rtt) / 4
	switch {
	case granted:
		if r.streak++; r.streak == 1 {
			r.since = now
		}
		r.countTurn(true)
	case others > 0: // else this instance holds all
		r.streak = 0
		r.countTurn(false)
	}
	if others > 0 {
		r.rivalUntil(now.Add(2 * time.Second))
	}
	if !granted {
		r.lastWaited = now
	}
}

// observeRelease is called for a notice of a release, which is sent only if a caller waits. If none has waited here for
// longer than the store remembers, one waits elsewhere.
func (r *fairness) observeRelease(now time.Time) {
	if now.Sub(r.lastWaited) > 2*time.Minute {
		r.startWaiting(now)
		r.rivalUntil(now.Add(2 * time.Second))
	}
}

func (r *fairness) countTurn(won bool) {
	r.losses++
	if won {
		r.losses, r.won = 0, true
	}
}

// observeRival is called when another instance has taken permits.
func (r *fairness) observeRival(d *backend.Definition, now time.Time) {
	r.unexplained = 0
	r.rivalUntil(now.Add(min(max(4*fullAfter(d), time.Second), 30*time.Second)))
}

func (r *fairness) rivalUntil(until time.Time) {
	r.rivalsUntil = until
	r.winsInRow = 0
}

// stepsBack reports whether the instance steps back this time, if it has won before.
func (r *fairness) stepsBack(won bool, now time.Time) bool {
	switch {
	case !won:
		r.winsInRow = 0
		return false
	case r.hasRivals(now):
		return true
	}
	if r.winsInRow++; r.winsInRow < winsBeforeLook || now.Sub(r.lastLooked) < lookInterval {
		return false
	}
	r.winsInRow, r.lastLooked = 0, now
	return true
}

// delay returns how much later the instance asks. One that steps back asks in the last third of most. The others ask in
// the first third, the earlier the longer they have not won.
func (r *fairness) delay(most time.Duration, back bool) time.Duration {
	third := most / 3
	some := time.Duration(rand.Int64N(int64(third) + 1))
	switch {
	case back:
		return most - third + some
	case !r.won:
		return 0
	default:
		return some / time.Duration(1+r.losses)
	}
}

// nextPause returns how long to wait if the next permits come back after wait.
func (r *fairness) nextPause(d *backend.Definition, wait time.Duration, now time.Time) time.Duration {
	if d == nil || wait <= 0 {
		return wait
	}
	won := r.taken > 0 && r.taken >= r.ownPart
	r.countTurn(won)
	back := r.stepsBack(won, now)
	if !back && !r.hasRivals(now) {
		return wait
	}
	wait = saturate.Add(wait, r.delay(maxDelay(d), back))
	if wait <= maxRest {
		r.nextTurn = now.Add(wait)
	}
	return wait
}

// maxDelay is so short that nothing is lost because a limiter is full meanwhile.
func maxDelay(d *backend.Definition) time.Duration { return min(shareTime(d)/2, maxTurnDelay) }

// shares reports whether the instance keeps to its part at first.
func (r *fairness) shares(now time.Time) bool {
	return r.lastAnswer.def != nil && r.hasRivals(now) && maxDelay(r.lastAnswer.def) >= time.Millisecond
}

// maxRequest returns how many permits to ask for at most.
func (r *fairness) maxRequest(now time.Time) int64 {
	if !r.shares(now) {
		return math.MaxInt64
	}
	d := r.lastAnswer.def
	at := r.lastAnswer.now + now.Sub(r.lastAnswer.got).Microseconds()
	s := d.Advance(r.lastAnswer.state, at)
	if s.Tick != r.tick {
		r.startTick(s.Tick, freePermits(d, s))
	}
	if r.allowance == 0 {
		if r.part == 0 {
			r.part = 1. / 8
		}
		r.ownPart = max(int64(r.part*float64(r.atStart)+r.owed+rand.Float64()), 1)
		r.allowance, r.piece = r.ownPart, r.ownPart
	}
	if r.taken >= r.allowance && at >= d.TickTime(r.tick)+r.leftAfter(d) {
		r.allowance = saturate.Add(r.taken, r.piece)
		r.piece = saturate.Add(r.piece, r.piece)
	}
	return max(r.allowance-r.taken, 1)
}

// leasePause returns how long to wait before asking a concurrency limiter.
func (r *fairness) leasePause(heard bool, now time.Time) time.Duration {
	switch {
	case r.free > 0:
		return 0
	case !heard && r.stepsBack(r.streak > 0 && now.Sub(r.since) >= maxPollDelay/2, now):
		r.streak = 0
		return r.delay(maxPollDelay, true)
	case !heard:
		return 0
	}
	most := min(max(6*r.rtt, minLeaseDelay), maxLeaseDelay)
	if back := r.stepsBack(r.streak > 1, now); back || r.hasRivals(now) {
		return r.delay(most, back)
	}
	return 0
}

// pauseLeft returns how long the instance does not ask because of rivals. A wait for a later tick does not concern a
// caller who finds permits now.
func (r *fairness) pauseLeft(now time.Time) time.Duration {
	back := r.nextTurn.Sub(now)
	if back > maxTurnDelay {
		back = 0
	}
	return max(back, r.restLeft(now))
}

// restLeft returns for how much longer the rest of a tick's permits is left to rivals.
func (r *fairness) restLeft(now time.Time) time.Duration {
	if !r.hasRivals(now) {
		return 0
	}
	return r.restUntil.Sub(now)
}

// newcomerPause returns how long a new caller must not ask because rivals come first.
func (r *fairness) newcomerPause(lends, heard bool, now time.Time) time.Duration {
	switch {
	case !lends && r.shares(now):
		return max(r.pauseLeft(now), 1) // serveLoop knows how many to ask for
	case !lends:
		return r.pauseLeft(now)
	case r.free > 0 || !r.tracks(now):
		return 0
	case heard && r.streak < 2 || !heard && (r.streak == 0 || now.Sub(r.since) < maxPollDelay/2):
		return 0
	case r.hasRivals(now) || r.winsInRow+1 >= winsBeforeLook && now.Sub(r.lastLooked) >= lookInterval:
		return 1 // serveLoop knows for how long
	default:
		return 0
	}
}

// fullAfter returns how long it takes until all permits have come back.
func fullAfter(d *backend.Definition) time.Duration {
	switch d.Kind {
	case backend.KindTokenBucket:
		return duration(saturate.Mul(d.Period, (d.Permits-1)/max(d.Refill, 1)+1))
	case backend.KindSlidingWindow:
		return duration(saturate.Mul(d.Period, d.Segments))
	default:
		return duration(d.Period)
	}
}
