package weirredis

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"

	"github.com/redis/go-redis/v9"

	"github.com/weir-go/weir/store/backend"
)

var _ backend.Sharded = (*Backend)(nil)

// ended is a context that has ended, so that MasterForKey sends nothing.
var ended = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()

// unservedShard is the shard of all keys whose slots no server has.
const unservedShard = "slots without a server"

// ShardOf returns the address of the Cluster's server that has a key, as far as the client knows, or "slots without a
// server". The client follows a slot that moves, or whose server was replaced, as soon as a server reports it. Without a
// Cluster there is one shard, "".
func (b *Backend) ShardOf(name, key string) string {
	if b.cluster == nil || !b.slotsKnown.Load() {
		return ""
	}
	p := b.places(name).of(key)
	if b.unserved.count.Load() > 0 && b.unserved.has(slotOf(p.start)) {
		return unservedShard
	}
	return b.serverAt(p)
}

// errUnserved is the error of a call about a slot that was unserved before. It is an outage of the unservedShard. The call
// that finds the slot unserved was made as one to a server, which is not to blame.
var errUnserved = errors.New("the slot has no server")

// A slotSet is a set of slots of a Cluster. The zero value is empty.
type slotSet struct {
	count atomic.Int64
	words [numSlots / 64]atomic.Uint64
}

// numSlots is how many slots a Cluster has.
const numSlots = 1 << 14

func (s *slotSet) has(slot int) bool { return s.words[slot/64].Load()&(1<<(slot%64)) != 0 }

// set puts a slot into the set or takes it out, and reports whether it was in the set.
func (s *slotSet) set(slot int, in bool) (was bool) {
	word, bit := &s.words[slot/64], uint64(1)<<(slot%64)
	if in {
		if was = word.Or(bit)&bit != 0; !was {
			s.count.Add(1)
		}
	} else if was = word.And(^bit)&bit != 0; was {
		s.count.Add(-1)
	}
	return was
}

// slotOf returns the slot of a name: CRC-16/XMODEM of what its first braces enclose.
func slotOf(name string) int {
	_, tag, _ := strings.Cut(name, "{")
	tag, _, _ = strings.Cut(tag, "}")
	var crc uint16
	for i := range len(tag) {
		crc ^= uint16(tag[i]) << 8
		for range 8 {
			if carry := crc & 0x8000; carry != 0 {
				crc = crc<<1 ^ 0x1021
			} else {
				crc <<= 1
			}
		}
	}
	return int(crc % numSlots)
}

// noteSlot notes whether the slot of an answered call has a server. If it had none before either, noteSlot gives the call
// another error and returns that.
func (b *Backend) noteSlot(c *call) error {
	if b.cluster == nil || c.cmd == nil {
		return nil
	}
	err := c.cmd.Err()
	lost := unserved(err)
	if !lost && (b.unserved.count.Load() == 0 || err != nil && !keyError(err)) {
		return nil
	}
	if was := b.unserved.set(slotOf(c.args[3].(string)), lost); !was || !lost {
		return nil
	}
	err = fmt.Errorf("%w: %w", errUnserved, err)
	c.cmd.SetErr(err)
	return err
}

func (b *Backend) serverAt(p *place) string {
	server, err := b.cluster.MasterForKey(ended, p.start)
	if err != nil {
		return ""
	}
	return server.Options().Addr
}

// answered notes that a server of the Cluster has answered: from now on the client knows which server has which slot,
// and MasterForKey need not ask.
func (b *Backend) answered() {
	if b.cluster != nil && !b.slotsKnown.Load() {
		b.slotsKnown.Store(true)
	}
}

// placesElsewhere returns a place of the limiter on each server of the Cluster except that of the definition, three at
// most.
func (b *Backend) placesElsewhere(l *limiterPlaces) []*place {
	if b.cluster == nil || !b.slotsKnown.Load() {
		return nil
	}
	seen := map[string]bool{"": true, b.serverAt(l.of("")): true}
	var some []*place
	for i := range numPlaces {
		p := l.at(i)
		if at := b.serverAt(p); !seen[at] && len(some) < 3 {
			seen[at] = true
			some = append(some, p)
		}
	}
	return some
}

// subscribe listens at a random server of a Cluster, because each server forwards what is published at another. If all
// instances listened at the server that has the channel's slot, all would miss notices while that server is away.
func (b *Backend) subscribe(ctx context.Context) *redis.PubSub {
	if b.cluster != nil && b.slotsKnown.Load() {
		if server, err := b.cluster.MasterForKey(ended, rand.Text()); err == nil {
			return server.Subscribe(ctx, b.names.channel())
		}
	}
	return b.client.Subscribe(ctx, b.names.channel())
}
