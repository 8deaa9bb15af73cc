package weirredis

import (
	"context"
	"encoding/binary"
	"math"

	"github.com/weir-go/weir/store"
)

// Decide decides all batches by the clock of the server that has the key, in one round trip.
func (b *Backend) Decide(ctx context.Context, batches []*store.Batch) error {
	if len(batches) == 1 {
		if err := b.decideOne(ctx, batches[0]); err != nil {
			return wrap(ctx, "decide", err)
		}
		return nil
	}
	if err := b.decideAll(ctx, batches); err != nil {
		return wrap(ctx, "decide", err)
	}
	return nil
}

func (b *Backend) decideOne(ctx context.Context, batch *store.Batch) error {
	p, err := b.plan(batch.Definition)
	if err != nil {
		return err
	}
	c := p.call(batch)
	answer, err := b.run(ctx, &c)
	if err != nil {
		return err
	}
	return p.read(batch, answer)
}

func (b *Backend) decideAll(ctx context.Context, batches []*store.Batch) error {
	plans := make([]*plan, len(batches))
	calls := make([]call, len(batches))
	for i, batch := range batches {
		p, err := b.plan(batch.Definition)
		if err != nil {
			return err
		}
		plans[i], calls[i] = p, p.call(batch)
	}
	if err := b.runAll(ctx, calls); err != nil {
		return err
	}
	for i, batch := range batches {
		if err := calls[i].cmd.Err(); err != nil {
			batch.Outcome, batch.Err = store.Failed, wrap(ctx, "decide", err)
		} else if err := plans[i].read(batch, calls[i].cmd.Val()); err != nil {
			return err
		}
	}
	return nil
}

// call is the script for a batch with its arguments.
func (p *plan) call(batch *store.Batch) call {
	key := p.key(batch.Key)
	if n := p.usual(batch.Asks); n == 1 {
		return call{script: p.take, args: []any{"evalsha", p.take.sha, "1", key, p.one}}
	} else if n > 0 {
		return call{script: p.take, args: []any{"evalsha", p.take.sha, "1", key, p.forTake(n)}}
	}
	return call{script: p.asks, args: []any{"evalsha", p.asks.sha, "1", key, p.limits, p.askBytes(batch.Asks)}}
}

// usual returns how many permits are asked for if it is the usual ask: one Take of so many permits, or none.
// Otherwise 0.
func (p *plan) usual(asks []store.Ask) int64 {
	if len(asks) != 1 {
		return 0
	}
	if a := &asks[0]; a.Op == store.Take && a.Min == a.Max && a.Min > 0 && (!a.Lend || p.refillsOnce) {
		return min(a.Max, tooMany)
	}
	return 0
}

// tooMany is more than there ever is, and exact.
const tooMany = 1 << 52

// askBytes is what scripts read asks from: each is two bytes and four doubles.
func (p *plan) askBytes(asks []store.Ask) []byte {
	b := make([]byte, 0, 34*len(asks))
	for _, a := range asks {
		var flags byte
		if a.IfPrevious {
			flags = 1
		}
		if a.Lend && !p.refillsOnce {
			flags += 2
		}
		if a.Op == store.Return && p.refillsOnce {
			a.Op = store.Refund
		}
		b = append(b, byte(a.Op), flags)
		for _, n := range [...]int64{min(max(a.Min, 0), tooMany), min(max(a.Max, 0), tooMany), a.Mark.Line, a.Mark.After} {
			b = binary.LittleEndian.AppendUint64(b, math.Float64bits(float64(n)))
		}
	}
	return b
}
