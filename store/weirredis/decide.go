package weirredis

import (
	"context"
	"encoding/binary"
	"math"

	"github.com/weir-go/weir/store/backend"
)

// Decide decides all batches by the clock of the server that has the key, in one round trip.
func (b *Backend) Decide(ctx context.Context, batches []*backend.Batch) error {
	if len(batches) == 1 {
		return b.decideOne(ctx, batches[0])
	}
	return b.decideAll(ctx, batches)
}

func (b *Backend) decideOne(ctx context.Context, batch *backend.Batch) error {
	p, err := b.plan(batch.Definition)
	if err != nil {
		failed(ctx, batch, err)
		return nil
	}
	c := p.call(batch)
	answer, err := b.run(ctx, &c)
	if err == nil {
		err = p.read(batch, answer)
	}
	switch {
	case err == nil:
		return nil
	case ofTheKey(err):
		failed(ctx, batch, err)
		return nil
	}
	return wrap(ctx, "decide", err)
}

// failed is for a batch that says nothing of the others.
func failed(ctx context.Context, batch *backend.Batch, err error) {
	batch.Outcome, batch.Err = outcomeOf(err), wrap(ctx, "decide", err)
}

func (b *Backend) decideAll(ctx context.Context, batches []*backend.Batch) error {
	plans := make([]*plan, 0, len(batches))
	calls := make([]call, 0, len(batches))
	asked := make([]*backend.Batch, 0, len(batches))
	for _, batch := range batches {
		p, err := b.plan(batch.Definition)
		if err != nil {
			failed(ctx, batch, err)
			continue
		}
		plans, calls, asked = append(plans, p), append(calls, p.call(batch)), append(asked, batch)
	}
	if err := b.runAll(ctx, calls); err != nil {
		return wrap(ctx, "decide", err)
	}
	for i, batch := range asked {
		err := calls[i].cmd.Err()
		if err == nil {
			err = plans[i].read(batch, calls[i].cmd.Val())
		}
		if err != nil {
			failed(ctx, batch, err)
		}
	}
	return nil
}

// call is the script for a batch with its arguments.
func (p *plan) call(batch *backend.Batch) call {
	at := p.places.of(batch.Key)
	key := at.state(batch.Key)
	if n := p.usual(batch.Requests); n == 1 {
		return call{script: p.take, args: []any{"evalsha", p.take.sha, "2", key, at.def, p.one}}
	} else if n > 0 {
		return call{script: p.take, args: []any{"evalsha", p.take.sha, "2", key, at.def, p.forTake(n)}}
	}
	return call{script: p.asks, args: []any{"evalsha", p.asks.sha, "2", key, at.def, p.limits, p.askBytes(batch.Requests)}}
}

// usual returns how many permits are asked for if it is the usual ask: one Take of so many permits, or none.
// Otherwise 0.
func (p *plan) usual(asks []backend.Request) int64 {
	if len(asks) != 1 {
		return 0
	}
	if a := &asks[0]; a.Op == backend.OpTake && a.Min == a.Max && a.Min > 0 && (!a.Block || p.refillsOnce) {
		return min(a.Max, tooMany)
	}
	return 0
}

// tooMany is more than there ever is, and exact.
const tooMany = 1 << 52

// askBytes is what scripts read asks from: each is two bytes and four doubles.
func (p *plan) askBytes(asks []backend.Request) []byte {
	b := make([]byte, 0, 34*len(asks))
	for _, a := range asks {
		var flags byte
		if a.IfPrevious {
			flags = 1
		}
		if a.Block && !p.refillsOnce {
			flags += 2
		}
		if a.Op == backend.OpReturnBlock && p.refillsOnce {
			a.Op = backend.OpRefund
		}
		b = append(b, byte(a.Op), flags)
		for _, n := range [...]int64{min(max(a.Min, 0), tooMany), min(max(a.Max, 0), tooMany), a.Receipt.Tick, a.Receipt.Missing} {
			b = binary.LittleEndian.AppendUint64(b, math.Float64bits(float64(n)))
		}
	}
	return b
}
