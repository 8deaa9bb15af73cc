package weirredis

import (
	"context"
	"encoding/binary"
	"math"

	"github.com/weir-go/weir/store/backend"
)

// Decide implements [backend.Backend]. It decides by the clock of the server that has the key.
func (b *Backend) Decide(ctx context.Context, batches []*backend.Batch) error {
	batches = backend.Valid(batches, "weirredis: decide", func(batch *backend.Batch) error { return batch.Definition.Check() })
	calls := make([]call, len(batches))
	for i, batch := range batches {
		calls[i] = b.places(batch.Definition.Name).planFor(batch, b.scripts).call(batch)
	}
	return runEach(ctx, b.servers, "decide", batches, calls, func(batch *backend.Batch, c *call) error {
		return c.plan.readAnswer(batch, c.cmd.Val())
	})
}

// call returns the script for a batch with its arguments.
func (p *plan) call(batch *backend.Batch) call {
	at := p.places.of(batch.Key)
	key := at.state(batch.Key)
	if n := p.singleTake(batch.Requests); n == 1 {
		return call{plan: p, script: p.take, args: []any{"evalsha", p.take.sha, "2", key, at.def, p.takeOne}}
	} else if n > 0 {
		return call{plan: p, script: p.take, args: []any{"evalsha", p.take.sha, "2", key, at.def, p.forTake(n)}}
	}
	return call{plan: p, script: p.requests, args: []any{"evalsha", p.requests.sha, "2", key, at.def, p.limits, p.requestBytes(batch.Requests)}}
}

// singleTake returns n if there is only one request, and it takes either n permits or none. Otherwise it returns 0. Most
// batches are single takes.
func (p *plan) singleTake(requests []backend.Request) int64 {
	if len(requests) != 1 {
		return 0
	}
	if r := &requests[0]; r.Op == backend.OpTake && r.Min == r.Max && r.Min > 0 && (!r.Block || p.refillsOnce) {
		return min(r.Max, moreThanAny)
	}
	return 0
}

// moreThanAny is larger than any number of permits, and exact as a double. Larger numbers are replaced by moreThanAny.
const moreThanAny = 1 << 52

// requestBytes returns the requests as scripts read them: each is two bytes and four doubles.
func (p *plan) requestBytes(requests []backend.Request) []byte {
	b := make([]byte, 0, 34*len(requests))
	for _, r := range requests {
		var flags byte
		if r.IfPrevious {
			flags = 1
		}
		if r.Block && !p.refillsOnce {
			flags += 2
		}
		if r.Op == backend.OpReturnBlock && p.refillsOnce {
			r.Op = backend.OpRefund
		}
		b = append(b, byte(r.Op), flags)
		for _, n := range [...]int64{min(max(r.Min, 0), moreThanAny), min(max(r.Max, 0), moreThanAny), r.Receipt.Line, r.Receipt.Taken} {
			b = binary.LittleEndian.AppendUint64(b, math.Float64bits(float64(n)))
		}
	}
	return b
}
