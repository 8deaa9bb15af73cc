package store

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/weir-go/weir/store/backend"
)

// sendDecisions makes one round trip with all requests of the calls.
func (s *Store) sendDecisions(trip *roundTrip, calls []*call) {
	sh := calls[0].shard
	if err := s.checkShard(sh); err != nil {
		trip.finish()
		group(calls).fail(err)
		return
	}
	trip.start(sh.breaker.current())
	sent := time.Now()
	groups := grouped(calls)
	batches := make([]*backend.Batch, len(groups))
	for i, g := range groups {
		batches[i] = g.batch()
	}
	ctx, cancel := context.WithTimeout(s.ctx, s.o.CallTimeout)
	err := s.backend.Decide(ctx, batches)
	cancel()
	if trip.finish() {
		var o outcomes
		for _, b := range batches {
			o.add(b.Outcome, b.Err)
		}
		sh.breaker.record(trip.epoch(), o.result(err))
	}
	var outdated []*outdatedGroup
	for i, g := range groups {
		switch b := batches[i]; {
		case err != nil:
			g.fail(err)
		case b.Outcome == backend.Decided:
			g.answer(b, sent)
		case b.Outcome == backend.Failed || b.Outcome == backend.Unreachable:
			g.fail(reasonOf(b.Err))
		default:
			outdated = append(outdated, &outdatedGroup{calls: g, batch: b})
		}
	}
	s.repair(outdated)
}

// outcomes are what the answers of a round trip say about the shard.
type outcomes struct {
	answered bool  // for at least one key the shard was reached, even if the key's outcome is Failed
	err      error // why a key could not be reached; ErrSetup before others
}

func (o *outcomes) add(outcome backend.Outcome, err error) {
	switch {
	case outcome != backend.Unreachable && !errors.Is(err, backend.ErrSetup):
		o.answered = true
	case !errors.Is(o.err, backend.ErrSetup):
		o.err = reasonOf(err)
	}
}

// result returns the error of a round trip; err is that of the backend. It counts as failed only if no key was answered, or
// with ErrSetup: if some were, the others may have just moved to another shard.
func (o *outcomes) result(err error) error {
	if err == nil && (!o.answered || errors.Is(o.err, backend.ErrSetup)) {
		return o.err
	}
	return err
}

// A group is the calls of a round trip that are about the same key.
type group []*call

// grouped returns the groups of the calls, sorted by name and key as [backend.Backend] demands.
func grouped(calls []*call) []group {
	if len(calls) == 1 {
		return []group{calls}
	}
	sorted := slices.Clone(calls)
	slices.SortStableFunc(sorted, func(a, b *call) int {
		return cmp.Or(strings.Compare(a.c.name, b.c.name), strings.Compare(a.key, b.key))
	})
	var groups []group
	for start, i := 0, 1; i <= len(sorted); i++ {
		if i == len(sorted) || sorted[i].c.name != sorted[start].c.name || sorted[i].key != sorted[start].key {
			groups = append(groups, sorted[start:i:i])
			start = i
		}
	}
	return groups
}

// definition returns the newest definition that is in force for any of the calls. They can differ: a closed limiter and
// one made later with the same name share round trips.
func (g group) definition() *backend.Definition {
	d := g[0].c.keeper.InForce().Definition
	for _, q := range g[1:] {
		if own := q.c.keeper.InForce().Definition; own.Version > d.Version {
			d = own
		}
	}
	return d
}

func (g group) batch() *backend.Batch {
	b := &backend.Batch{}
	g.fill(b)
	return b
}

// fill sets the definition and the requests. Permits that were taken under another schedule cannot be given back any
// more, so the Max of such a request becomes 0.
func (g group) fill(b *backend.Batch) {
	b.Definition, b.Key = g.definition(), g[0].key
	switch {
	case len(g) == 1:
		b.Requests, b.Granted = g[0].requests, g[0].oneGranted[:]
	case g.allSingle():
		b.Requests, b.Granted = []backend.Request{{Min: 1, Max: int64(len(g))}}, make([]int64, 1)
		return
	}
	for _, q := range g {
		if q.def != nil && !q.def.SameLines(&b.Definition.Schedule) {
			for i := range q.requests {
				q.requests[i].Max = 0
			}
		}
		if len(g) > 1 {
			b.Requests = append(b.Requests, q.requests...)
		}
	}
	if len(b.Granted) != len(b.Requests) {
		b.Granted = make([]int64, len(b.Requests))
	}
}

// allSingle reports whether every call asks for one permit, as most do. Then one request asks for all, and what is
// granted goes to the first calls.
func (g group) allSingle() bool {
	for _, q := range g {
		if len(q.requests) != 1 || q.requests[0] != (backend.Request{Min: 1, Max: 1}) {
			return false
		}
	}
	return true
}

// spread divides among the calls what one request for all of them was granted; see allSingle.
func (g group) spread(granted int64) []int64 {
	each := make([]int64, len(g))
	for i := range each {
		if each[i] = 1; int64(i) >= granted {
			each[i] = backend.Rejected
		}
	}
	return each
}

func (g group) fail(err error) {
	for _, q := range g {
		q.fail(err)
	}
}

// answer splits the answers to a batch among the calls. The backend returns the state after all requests. Receipts need
// the state after each request, so answer goes through the requests from the last to the first. pending is as in
// observation.
func (g group) answer(b *backend.Batch, sent time.Time) {
	s := b.State
	if len(b.Requests) < len(g) {
		b.Granted = g.spread(b.Granted[0])
	}
	end := len(b.Granted)
	for _, q := range slices.Backward(g) {
		end -= len(q.requests)
		q.granted = b.Granted[end : end+len(q.requests)]
		q.after = q.oneAfter[:]
		if len(q.requests) > 1 {
			q.after = make([]afterRequest, len(q.requests))
		}
		for j := len(q.requests) - 1; j >= 0; j-- {
			q.after[j] = afterRequest{receipt: b.Definition.Receipt(&s), missing: s.Missing}
			s.Missing -= missingChange(q.requests[j].Op, q.granted[j])
			if q.requests[j].Op == backend.OpRefund || q.requests[j].Op == backend.OpGiveBack {
				s.Refunded -= q.granted[j]
			}
		}
		q.def, q.state, q.now, q.sent = b.Definition, b.State, b.Now, sent
	}
	for _, q := range g { // in the order of their arrival
		q.answer()
	}
}

// missingChange returns by how much a request has changed what is missing.
func missingChange(op backend.Op, granted int64) int64 {
	if op > backend.OpCharge { // gives permits back
		return -granted
	}
	return max(granted, 0)
}
