package storetest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/weir-go/weir/rate"
	"github.com/weir-go/weir/store/backend"
)

// A script sends random requests about a few keys of a few limiters of one kind.
type script struct {
	p       *probe
	random  *rand.Rand
	targets []scriptTarget
	clock   int64 // the time that was set; 0: none
}

// A scriptTarget is a key of a script, with its last grants.
type scriptTarget struct {
	d      *backend.Definition
	key    string
	grants []grant
}

type grant struct {
	n       int64
	receipt rate.Receipt
}

const scriptCalls = 50

// fewer returns a third of n with -short.
func fewer(n int) int {
	if testing.Short() {
		return n / 3
	}
	return n
}

// play runs the script of a seed. If setTime is true, the script also sets the server's time.
func play(p *probe, kind rate.Kind, seed uint64, setTime bool) {
	s := &script{p: p, random: rand.New(rand.NewPCG(seed, uint64(kind)))}
	now := p.now()
	if setTime {
		now += (60 * 24 * time.Hour).Microseconds() // after every time that the server itself has seen
		s.clock = now
		p.s.SetTime(p.t, p.b, now)
	}
	for i := range 1 + s.random.IntN(3) {
		d := &backend.Definition{Name: fmt.Sprint(p.name, "-", seed, "-", i), Schedule: s.limits(kind, setTime), Version: now}
		if kind != rate.Calendar {
			d.Anchor = now + s.random.Int64N(7*d.Period) - 5*d.Period
		}
		p.store(d)
		for j := range 1 + s.random.IntN(2) {
			s.targets = append(s.targets, scriptTarget{d: d, key: fmt.Sprint("key", j)})
		}
	}
	for range scriptCalls {
		jumps := setTime && (s.nearLine() > 0 || s.random.IntN(2) == 0)
		if jumps {
			s.jump()
		}
		s.call(jumps)
	}
}

// limits returns small limits, so that the script reaches their bounds. If setTime is true, periods are long, so that no
// key becomes full while the time stands still. Otherwise, most are so short that lines pass.
func (s *script) limits(kind rate.Kind, setTime bool) rate.Schedule {
	l := rate.Schedule{Kind: kind, Permits: 1 + s.random.Int64N(12)}
	if kind == rate.Calendar {
		return calendarOf(l.Permits, []rate.Cycle{rate.Day, rate.WeekFrom(time.Sunday), rate.MonthFrom(30)}[s.random.IntN(3)])
	}
	l.Period = []int64{170, 1_000, 5_003, 60_000_000}[s.random.IntN(4)]
	if setTime {
		l.Period = []int64{61_000_003, time.Hour.Microseconds()}[s.random.IntN(2)]
	}
	switch kind {
	case rate.TokenBucket:
		l.Refill = 1 + s.random.Int64N(l.Permits+2)
	case rate.SlidingWindow:
		l.Segments = 1 + s.random.Int64N(6)
	}
	return l
}

// jump sets the time: a little or much later, or earlier, and sometimes to a line or right before one.
func (s *script) jump() {
	d := s.targets[s.random.IntN(len(s.targets))].d
	by := s.random.Int64N(d.Period)
	switch s.random.IntN(6) {
	case 0:
		by = 0
	case 1:
		by += d.Period * s.random.Int64N(3)
	case 2:
		by += d.Period * s.random.Int64N(3*max(d.Segments, min(d.Permits, 4)))
	case 3:
		by = d.TimeOf(d.LineAt(s.clock)+1) - s.clock - s.random.Int64N(2)
	}
	switch near := s.nearLine(); {
	case near > 0:
		by = max(by, near)
	case s.random.IntN(5) == 0:
		s.write()
		by = -by
	}
	s.clock += by
	s.p.s.SetTime(s.p.t, s.p.b, s.clock)
}

// write makes the server write every key before its clock steps back. A server need not write a decision that changes
// nothing. Then the line that it has stored is earlier than the line in the model.
func (s *script) write() {
	var batches []*backend.Batch
	for _, t := range s.targets {
		batches = append(batches, batchOf(t.d, t.key, charge(1)))
	}
	s.p.decide(batches...)
}

// nearLine returns how far ahead the last line within the next ten seconds is, or 0 if there is none. Around such a
// line, the server can forget a full key by its own clock, although the time that was set stands still. Therefore, the
// script then sets the time past the line, and not back.
func (s *script) nearLine() (near int64) {
	for _, t := range s.targets {
		if left := t.d.TimeOf(t.d.LineAt(s.clock)+1) - s.clock; left < (10 * time.Second).Microseconds() {
			near = max(near, left)
		}
	}
	return near
}

// call sends requests about some keys at once, or about all of them.
func (s *script) call(all bool) {
	var batches []*backend.Batch
	var before []rate.State
	var called []*scriptTarget
	for i := range s.targets {
		t := &s.targets[i]
		if !all && len(batches) > 0 && s.random.IntN(2) == 0 {
			continue
		}
		b := &backend.Batch{Definition: t.d, Key: t.key}
		for range 1 + s.random.IntN(4) {
			b.Requests = append(b.Requests, s.request(t))
		}
		batches, called = append(batches, b), append(called, t)
		before = append(before, s.p.model.at(t.d, t.key, 0).State)
	}
	s.p.decide(slices.Clone(batches)...) // which sorts them
	for i, b := range batches {
		s.checkTime(b)
		for j, receipt := range receiptsOf(b.Definition, before[i], b.Now, b.Requests) {
			if n := b.Granted[j]; n > 0 && b.Requests[j].Op <= backend.OpCharge {
				called[i].grants = append(called[i].grants, grant{n, receipt})
			}
		}
	}
}

func (s *script) checkTime(b *backend.Batch) {
	if ahead := b.Now - s.clock; s.clock != 0 && (ahead < 0 || ahead > time.Minute.Microseconds()) {
		s.p.fail(fmt.Sprintf("the time is the one that was set, %d", s.clock), b.Now)
	}
}

func (s *script) request(t *scriptTarget) backend.Request {
	r := s.anyRequest(t)
	r.IfPrevious = s.random.IntN(4) == 0
	return r
}

func (s *script) anyRequest(t *scriptTarget) backend.Request {
	n := s.random.Int64N(t.d.Permits + 2)
	switch s.random.IntN(13) {
	case 0:
		return take(0)
	case 10:
		return giveBack(n)
	case 1, 2:
		return backend.Request{Min: s.random.Int64N(n + 1), Max: n}
	case 3, 4:
		return backend.Request{Min: s.random.Int64N(n + 1), Max: n, Block: true}
	case 5:
		return charge(n)
	case 6, 7:
		g := s.anyGrant(t)
		return refund(g.n, g.receipt)
	case 8, 9:
		g := s.anyGrant(t)
		return returnBlock(g.n, g.receipt)
	}
	return take(min(n, 1+s.random.Int64N(3)))
}

// anyGrant returns one of the last grants, a part of one, or a grant that was never made.
func (s *script) anyGrant(t *scriptTarget) grant {
	if len(t.grants) == 0 || s.random.IntN(10) == 0 {
		line := s.p.model.at(t.d, t.key, s.clock).Line
		return grant{s.random.Int64N(5), rate.Receipt{Line: line + s.random.Int64N(5) - 2, Taken: 1 + s.random.Int64N(2*t.d.Permits)}}
	}
	g := t.grants[len(t.grants)-1-s.random.IntN(min(len(t.grants), 4))]
	if s.random.IntN(3) == 0 {
		g.n = 1 + s.random.Int64N(g.n)
	}
	return g
}

var scriptCases = func() (list []testCase) {
	for _, kind := range []rate.Kind{rate.TokenBucket, rate.FixedWindow, rate.SlidingWindow, rate.Calendar} {
		list = append(list, testCase{
			name: "a " + kind.String() + " answers as the model does, whatever is asked",
			run: func(p *probe) {
				for seed := range uint64(fewer(10)) {
					play(p, kind, seed, false)
				}
			},
		}, testCase{
			name: "a " + kind.String() + " answers as the model does, however the clock jumps", when: Subject.setsTime,
			run: func(p *probe) {
				for seed := range uint64(fewer(20)) {
					play(p, kind, 1000+seed, true)
				}
			},
		})
	}
	return list
}()
