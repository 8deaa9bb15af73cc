package storetest

import (
	"context"
	"fmt"

	"github.com/weir-go/weir/rate"
	"github.com/weir-go/weir/store/backend"
)

// replaces calls Replace and expects the result want.
func (p *probe) replaces(d *backend.Definition, key string, old, next backend.State, want bool, why string) {
	done, err := replaceOne(p.ctx, p.b, d, key, old, next)
	p.works("Replace", err)
	p.check(done == want, fmt.Sprintf("Replace of %+v by %+v answers %v: %s", old, next, want, why), done)
	if done {
		p.model[target{d.Name, key}] = next
	}
}

func replaceOne(ctx context.Context, b backend.Backend, d *backend.Definition, key string, old, next backend.State) (bool, error) {
	r := &backend.Replacement{Definition: d, Key: key, Old: old, Next: next}
	if err := b.Replace(ctx, []*backend.Replacement{r}); err != nil {
		return false, err
	}
	if r.Outcome != backend.Decided {
		return false, fmt.Errorf("outcome %d: %w", r.Outcome, r.Err)
	}
	return r.Done, nil
}

// oldState expects that a key has a state of an older definition, and returns it.
func (p *probe) oldState(d *backend.Definition, key string) backend.State {
	b := p.ask(d, key, take(1))
	p.check(b.Outcome == backend.OutdatedState && b.Stored != nil, "the state is returned: it is of an older definition", describe(b))
	return *b.Stored
}

// differing returns states that differ from s in one field each.
func differing(s backend.State) (list []backend.State) {
	changes := []func(*backend.State){
		func(s *backend.State) { s.Missing++ },
		func(s *backend.State) { s.Line-- },
		func(s *backend.State) { s.Version-- },
	}
	if s.Schedule.Kind == rate.TokenBucket {
		changes = append(changes, func(s *backend.State) { s.Floor++ }, func(s *backend.State) { s.Refunded++ })
	}
	for i := range s.Segments {
		changes = append(changes,
			func(s *backend.State) { s.Segments[i].Permits++ },
			func(s *backend.State) { s.Segments[i].Line-- })
	}
	if len(s.Segments) > 0 {
		changes = append(changes, func(s *backend.State) { s.Segments = s.Segments[1:] })
	}
	for _, change := range changes {
		other := s
		other.Segments = append([]rate.Segment(nil), s.Segments...)
		change(&other)
		list = append(list, other)
	}
	return list
}

// crowded returns a state of a sliding window in which permits were taken in every other segment.
func crowded(d *backend.Definition, now int64) backend.State {
	s := d.Stored(d.Full(now))
	for i := d.Segments - 1; i >= 0; i -= 2 {
		s.Segments = append(s.Segments, rate.Segment{Line: s.Line - i, Serial: s.Line - i, Permits: 1 + i%7})
		s.Missing += 1 + i%7
	}
	return s
}

var replaceCases = []testCase{
	{name: "a state of an older definition is returned, and nothing is decided", run: func(p *probe) {
		for d, key := range p.timed(5) {
			p.takes(d, key, 2, 2, "it is full")
			next := newer(d, nil)
			for range 2 {
				p.oldState(next, key)
			}
			p.takes(d, key, 3, 3, "nothing was decided by the newer definition")
			p.takes(next, "fresh "+key, 5, 5, "a key without a state has no old one")
		}
	}},
	{name: "nothing is decided by an older definition than that of the state", run: func(p *probe) {
		for d, key := range p.timed(5) {
			next := newer(d, nil)
			p.takes(next, key, 2, 2, "it is full")
			b := p.ask(d, key, take(1))
			p.check(b.Outcome == backend.OutdatedDefinition, "the definition is outdated", describe(b))
			p.takes(next, key, 3, 3, "nothing was decided by the older definition")
		}
	}},
	{name: "a state is replaced once, and then decides", run: func(p *probe) {
		for _, l := range timedLimits(5) {
			for _, to := range timedLimits(7) {
				d, key := p.define(l), fmt.Sprint(l.Kind, to.Kind)
				p.takes(d, key, 2, 2, "it is full")
				next := newer(newer(d, nil), func(next *backend.Definition) { next.Schedule = backend.NewDefinition("", to, d.Version).Schedule })
				old := p.oldState(next, key)
				p.replaces(next, key, old, next.Convert(old), true, "it is what is stored")
				p.replaces(next, key, old, next.Convert(old), false, "it has been replaced")
				p.takes(next, key, 5, 5, "2 of 7 are taken")
				p.takes(next, key, 1, backend.Rejected, "nothing is left")
			}
		}
	}},
	{name: "a state that has changed is not replaced", run: func(p *probe) {
		for d, key := range p.timed(9) {
			p.ask(d, key, takeBlock(2))
			next := newer(d, nil)
			old := p.oldState(next, key)
			p.takes(d, key, 1, 1, "7 are left")
			p.replaces(next, key, old, next.Convert(old), false, "one more was taken since")
			old = p.oldState(next, key)
			for _, other := range differing(old) {
				p.replaces(next, key, other, next.Convert(old), false, "it is not what is stored")
			}
			p.replaces(next, "another "+key, old, next.Convert(old), false, "the key has no state")
			p.replaces(next, key, old, next.Convert(old), true, "it is what is stored")
		}
	}},
	{name: "a state of many segments is replaced as a whole", run: func(p *probe) {
		d := p.define(slidingOf(5, 301))
		p.takes(d, "k", 1, 1, "it is full")
		next := newer(d, nil)
		old := p.oldState(next, "k")
		p.replaces(next, "k", old, crowded(next, p.now()), true, "it is what is stored")
		last := newer(next, nil)
		old = p.oldState(last, "k")
		all := differing(old)
		for i := 0; i < len(all); i += 23 {
			p.replaces(last, "k", all[i], last.Convert(old), false, "it is not what is stored")
		}
		p.replaces(last, "k", old, last.Convert(old), true, "it is what is stored")
		p.takes(last, "k", 1, backend.Rejected, "more was taken than there is")
	}},
	{name: "a key whose state is replaced by the initial one is full", run: func(p *probe) {
		for d, key := range p.timed(5) {
			p.takes(d, key, 5, 5, "it is full")
			next := newer(d, nil)
			p.replaces(next, key, p.oldState(next, key), next.Stored(next.Full(p.now())), true, "it is what is stored")
			p.takes(next, key, 5, 5, "it is full")
		}
	}},
	{name: "many states are replaced in one call, each if it is what is stored", run: func(p *probe) {
		d := p.define(slidingOf(9, 6))
		next := newer(d, func(d *backend.Definition) { d.Permits = 12 })
		var all []*backend.Replacement
		for i := range 40 {
			key := fmt.Sprintf("k%02d", i)
			for range i % 3 {
				p.takes(d, key, 2, 2, "it is full")
			}
			old := d.Stored(d.Full(p.now()))
			if i%3 > 0 {
				old = p.oldState(next, key)
			}
			if i%4 == 3 {
				old.Missing++
			}
			all = append(all, &backend.Replacement{Definition: next, Key: key, Old: old, Next: next.Convert(old)})
		}
		p.works("Replace", p.b.Replace(p.ctx, all))
		for i, r := range all {
			p.check(r.Outcome == backend.Decided && r.Done == (i%3 > 0 && i%4 != 3), "what is stored is replaced, and nothing else", fmt.Sprintf("%d: %+v", i, *r))
			if r.Done {
				p.model[target{next.Name, r.Key}] = r.Next
				p.takes(next, r.Key, 12-int64(2*(i%3)), 12-int64(2*(i%3)), "the rest of 12 is available")
			}
		}
	}},
	{name: "some keys of one call are decided and some are not", run: func(p *probe) {
		d := p.newDefinition(slowLimits(5)) // with a stored one, it would decide of which version an old one is outdated
		next := newer(d, nil)
		p.takes(d, "b", 1, 1, "it is full")
		p.takes(next, "c", 1, 1, "it is full")
		outdated := newer(d, func(d *backend.Definition) { d.Version -= 2 })
		p.takes(next, "d", 1, 1, "it is full")
		p.decide(
			batchOf(next, "a", take(1)),
			batchOf(next, "b", take(1)),
			batchOf(next, "c", take(1), take(2)),
			batchOf(outdated, "d", take(1)),
		)
	}},
}
