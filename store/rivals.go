package store

import (
	"math"
	"math/rand/v2"
	"time"

	"github.com/weir-go/weir/internal/saturate"
	"github.com/weir-go/weir/store/backend"
)

// A rivalry is what an instance knows of the other instances that wait for the permits of the
// same key, and decides when the instance asks next, and for how much. It is guarded by the
// lock of its cell. The zero rivalry knows of no rivals.
//
// All instances learn from the store when the next permits come, and only one gets them. If
// the winner came exactly then the next time, too, and the losers spread out so as not to
// storm the store, the winner would win for as long as it has waiters. So it is the other way
// round: an instance that had at least its usual share of what came last steps back for a
// moment, and the others come first, in an order that chance decides.
//
// Where more than one permit comes at once, each instance first takes its part, which begins at
// an eighth. A moment later, what is left is taken in pieces that double, with a pause after
// each, so that an instance with one caller keeps up with one that has thirty. Parts are learned
// from what happens, as TCP learns its share of a link: a part that was not to be had is halved,
// and all parts grow by the same where something is left. So they come to about the same.
//
// That keeps nothing in the store, needs no clock but the server's, and an instance that dies
// leaves nothing behind.
//
// Without rivals nothing of that happens, so one instance alone asks at the very moment. An
// instance finds rivals by what the store says is missing that it has not taken itself. One
// that always wins would find none: now and then it steps back to see who comes.
type rivalry struct {
	asked time.Time // when a caller last began to wait here: what follows is kept up to date for attentive
	until time.Time // rivals are taken to wait until then

	last known // the state after the last answer

	// doubt is how much others seem to have taken, if it was not another call of this instance
	// whose answer is still to come; doubted is when that came up.
	doubt   int64
	doubted time.Time

	// part is which part of what comes this instance takes first, and owed is by how many
	// permits it has got less than that lately.
	part, owed float64

	// Of the current line of the grid:
	line  int64
	there int64 // what was there when it began
	took  int64 // what this instance has taken
	extra int64 // what of took it has taken after the others had their chance
	first int64 // part, in permits; 0: not determined yet
	share int64 // what it may have taken by now: first, and later a piece more
	piece int64 // how much more it may take after that

	losses int  // how many turns have gone by since it had its share
	won    bool // it has had its share at least once

	// Of concurrency limiters: what was free after the last question, how many in a row were
	// granted, and since when.
	free   int64
	streak int
	since  time.Time
	rtt    time.Duration

	back  time.Time // until then the instance leaves the key to its rivals, unless it is woken
	rest  time.Time // until then it leaves them what is left of a line of which it has had its share
	lucky int       // how many times in a row it has won and saw no rival
	look  time.Time // when it last stepped back though it knew of no rival
}

const (
	// attentive is for how long after a caller has begun to wait rivals are looked for.
	attentive = 5 * time.Second
	// mostAttentive bounds that where permits come so rarely that it takes longer.
	mostAttentive = 2 * time.Minute
	// mostLate bounds by how much later than it could an instance asks because it has rivals.
	mostLate = 50 * time.Millisecond
	// longestRest bounds for how long an instance that has had its share leaves the rest.
	longestRest = time.Second
	// leastTurn, mostTurn and turnPolled bound mostLate for concurrency limiters: where releases
	// are told of, so that all instances come at about the same time, and where each polls for
	// them.
	leastTurn  = 2 * time.Millisecond
	mostTurn   = 12 * time.Millisecond
	turnPolled = 75 * time.Millisecond
	// looksAfter is how many wins in a row it takes to look for rivals, and looksEvery how much
	// time has to go by in between.
	looksAfter = 8
	looksEvery = 250 * time.Millisecond
	// leastPart bounds the part of an instance among very many.
	leastPart = 1. / 64
)

// attends reports whether rivals are looked for: for a while, and until permits have come twice.
func (r *rivalry) attends(now time.Time) bool {
	window := attentive
	if d := r.last.def; d != nil && d.Kind != backend.KindConcurrency {
		window = max(window, min(3*lasting(d.Period), mostAttentive))
	}
	return now.Sub(r.asked) < window
}

// begin is called when a caller begins to wait.
func (r *rivalry) begin(now time.Time) {
	if !r.attends(now) {
		*r = rivalry{} // what was taken meanwhile was not looked at
	}
	r.asked = now
}

// has reports whether rivals are known. If no caller of this instance was rejected lately, there is
// enough for all, and another instance that takes permits is no rival.
func (r *rivalry) has(now time.Time) bool { return r.attends(now) && now.Before(r.until) }

// An answer is what the store has said to a call.
type answer struct {
	def      *backend.Definition
	state    backend.State
	now      int64     // the store's clock
	sent     time.Time // when the call was sent
	own      int64     // by how much more is missing because of this instance
	rejected bool      // the instance has asked for more than there was
	alone    bool      // no other call of this instance was under way
}

// saw enters an answer.
func (r *rivalry) saw(a answer, now time.Time) {
	if a.rejected {
		r.asked = now
	}
	last, d, s, storeNow, own := r.last, a.def, a.state, a.now, a.own
	same := last.def != nil && last.def.SameSchedule(d) && last.def.Permits == d.Permits
	if same && storeNow < last.now {
		if a.sent.Before(last.got) { // the answer is late
			r.took += max(own, 0)
			r.doubt = max(r.doubt-own, 0)
			return
		}
		same = false // the server's clock was set back
	}
	if r.doubt > 0 && a.sent.After(r.doubted) {
		r.sawRival(d, now)
	}
	r.last = known{def: d, state: s, now: storeNow, got: now}
	before := s
	if before.Missing -= own; same {
		before = d.Advance(last.state, storeNow)
	}
	if !same || s.Tick != r.line {
		r.begins(s.Tick, s0(d, before))
	}
	r.took += max(own, 0)
	switch more := s.Missing - own - before.Missing; {
	case more > 0 && a.alone:
		r.sawRival(d, now)
	case more > 0:
		if r.doubt == 0 {
			r.doubted = now
		}
		r.doubt += more
	}
	r.adjust(d, storeNow, own, a.rejected, now)
}

// adjust changes part by what came of asking for it, and ends the turn once it was had.
func (r *rivalry) adjust(d *backend.Definition, storeNow, own int64, rejected bool, now time.Time) {
	if r.share == 0 {
		return
	}
	over := d.TickTime(r.line) + r.leftAfter(d) - storeNow // µs until what is left is for all
	if over <= 0 {
		r.extra += max(own, 0)
	}
	switch {
	case over > 0 && rejected && r.took < r.share && r.there > 1:
		r.part = max(r.part/2, float64(r.took)/float64(r.there), leastPart)
		r.share = max(r.took, 1)
		r.first = r.share
	case r.took < r.share || s0(d, r.last.state) == 0:
	case over > 0:
		// Of what is left, an instance whose part is small comes first.
		r.rest = now.Add(lasting(over) + some(float64(shareTime(d))/3*r.part))
	default:
		r.rest = now.Add(some(float64(shareTime(d)) / 16))
	}
}

// some is about so long.
func some(d float64) time.Duration { return time.Duration(d * (0.75 + rand.Float64()/2)) }

// begins opens the books of a line. All parts shrink a little, so that something is left for
// those that are too small, and grow by half of what was left over for them.
func (r *rivalry) begins(line, there int64) {
	if r.share > 0 && r.there > 1 {
		even := r.part * float64(r.there)
		r.owed = min(max(r.owed+even-float64(min(r.took, r.first)), -even), even)
		r.part = min(r.part+min(float64(r.extra)/float64(r.there)/2, 1./16), 1)
	}
	if r.first > 1 {
		r.part = max(r.part*15/16, leastPart)
	}
	r.line, r.there, r.took, r.extra, r.share, r.first = line, there, 0, 0, 0, 0
}

// s0 is how many permits are there.
func s0(d *backend.Definition, s backend.State) int64 { return d.Permits - s.Missing }

// leftAfter is after how many µs of a line what is left is for all.
func (r *rivalry) leftAfter(d *backend.Definition) int64 { return shareTime(d).Microseconds() }

// rest is how long a share is a share: after that, what is left of a line is for all.
func shareTime(d *backend.Definition) time.Duration {
	return min(lasting(d.Period)/4*3, fullAfter(d)/2, longestRest)
}

// sawHolds enters an answer about a concurrency limiter: others hold so many permits, and so
// many are free.
func (r *rivalry) sawHolds(others, free int64, granted bool, rtt time.Duration, now time.Time) {
	r.free = free
	r.rtt += (rtt - r.rtt) / 4
	switch {
	case granted:
		if r.streak++; r.streak == 1 {
			r.since = now
		}
		r.count(true)
	case others > 0: // else it is this instance that holds all
		r.streak = 0
		r.count(false)
	}
	if others > 0 {
		r.rivalUntil(now.Add(2 * time.Second))
	}
	if !granted {
		r.asked = now
	}
}

// heardRelease is called when a release was told of, which is done for callers who wait: if
// none has waited here for longer than the store keeps that in mind, one waits elsewhere.
func (r *rivalry) heardRelease(now time.Time) {
	if now.Sub(r.asked) > 2*time.Minute {
		r.begin(now)
		r.rivalUntil(now.Add(2 * time.Second))
	}
}

func (r *rivalry) count(won bool) {
	r.losses++
	if won {
		r.losses, r.won = 0, true
	}
}

// sawRival is called when another instance has taken permits.
func (r *rivalry) sawRival(d *backend.Definition, now time.Time) {
	r.doubt = 0
	r.rivalUntil(now.Add(min(max(4*fullAfter(d), time.Second), 30*time.Second)))
}

func (r *rivalry) rivalUntil(until time.Time) {
	r.until = until
	r.lucky = 0
}

// steps reports whether the instance steps back this time, having won before.
func (r *rivalry) steps(won bool, now time.Time) bool {
	switch {
	case !won:
		r.lucky = 0
		return false
	case r.has(now):
		return true
	}
	if r.lucky++; r.lucky < looksAfter || now.Sub(r.look) < looksEvery {
		return false
	}
	r.lucky, r.look = 0, now
	return true
}

// delay is how much later than it could the instance asks. An instance that steps back comes
// in the last third of most. The others come in the first, the earlier the longer they have
// not won.
func (r *rivalry) delay(most time.Duration, back bool) time.Duration {
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

// turn is how long to wait where the next permits come after wait.
func (r *rivalry) turn(d *backend.Definition, wait time.Duration, now time.Time) time.Duration {
	if d == nil || wait <= 0 {
		return wait
	}
	won := r.took > 0 && r.took >= r.first
	r.count(won)
	back := r.steps(won, now)
	if !back && !r.has(now) {
		return wait
	}
	wait = saturate.Add(wait, r.delay(maxDelay(d), back))
	if wait <= longestRest {
		r.back = now.Add(wait)
	}
	return wait
}

// mostLate is so little that nothing is lost because a limiter is full.
func maxDelay(d *backend.Definition) time.Duration { return min(shareTime(d)/2, mostLate) }

// shares reports whether the instance takes no more than its share at first.
func (r *rivalry) shares(now time.Time) bool {
	return r.last.def != nil && r.has(now) && maxDelay(r.last.def) >= time.Millisecond
}

// most is how many permits to ask for at the most.
func (r *rivalry) most(now time.Time) int64 {
	if !r.shares(now) {
		return math.MaxInt64
	}
	d := r.last.def
	at := r.last.now + now.Sub(r.last.got).Microseconds()
	s := d.Advance(r.last.state, at)
	if s.Tick != r.line {
		r.begins(s.Tick, s0(d, s))
	}
	if r.share == 0 {
		if r.part == 0 {
			r.part = 1. / 8
		}
		r.first = max(int64(r.part*float64(r.there)+r.owed+rand.Float64()), 1)
		r.share, r.piece = r.first, r.first
	}
	if r.took >= r.share && at >= d.TickTime(r.line)+r.leftAfter(d) {
		r.share = saturate.Add(r.took, r.piece)
		r.piece = saturate.Add(r.piece, r.piece)
	}
	return max(r.share-r.took, 1)
}

// giveWay is how long a concurrency limiter waits once it is worth asking.
func (r *rivalry) giveWay(heard bool, now time.Time) time.Duration {
	switch {
	case r.free > 0:
		return 0
	case !heard && r.steps(r.streak > 0 && now.Sub(r.since) >= turnPolled/2, now):
		r.streak = 0
		return r.delay(turnPolled, true)
	case !heard:
		return 0
	}
	most := min(max(6*r.rtt, leastTurn), mostTurn)
	if back := r.steps(r.streak > 1, now); back || r.has(now) {
		return r.delay(most, back)
	}
	return 0
}

// away is for how long the instance does not ask because of its rivals. What it waits for at a
// later line does not matter to a caller who finds permits now.
func (r *rivalry) away(now time.Time) time.Duration {
	back := r.back.Sub(now)
	if back > mostLate {
		back = 0
	}
	return max(back, r.resting(now))
}

// resting is for how much longer it leaves what is left of a line to its rivals, if there are any.
func (r *rivalry) resting(now time.Time) time.Duration {
	if !r.has(now) {
		return 0
	}
	return r.rest.Sub(now)
}

// leavesAlone is for how long a caller who has just come is not to ask, because the rivals
// come first.
func (r *rivalry) leavesAlone(lends, heard bool, now time.Time) time.Duration {
	switch {
	case !lends && r.shares(now):
		return max(r.away(now), 1) // the goroutine that serves the queue knows for how much to ask
	case !lends:
		return r.away(now)
	case r.free > 0 || !r.attends(now):
		return 0
	case heard && r.streak < 2 || !heard && (r.streak == 0 || now.Sub(r.since) < turnPolled/2):
		return 0
	case r.has(now) || r.lucky+1 >= looksAfter && now.Sub(r.look) >= looksEvery:
		return 1 // the goroutine that serves the queue knows for how long
	default:
		return 0
	}
}

// fullAfter is how long it takes until all permits have come back.
func fullAfter(d *backend.Definition) time.Duration {
	switch d.Kind {
	case backend.KindTokenBucket:
		return lasting(saturate.Mul(d.Period, (d.Permits-1)/max(d.Refill, 1)+1))
	case backend.KindSlidingWindow:
		return lasting(saturate.Mul(d.Period, d.Segments))
	default:
		return lasting(d.Period)
	}
}
