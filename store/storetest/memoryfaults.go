package storetest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weir-go/weir/store/backend"
)

var errAnswerLost = errors.New("storetest: the answer was lost")

// faults are what is wrong with the server and the connection to it.
type faults struct {
	err   error
	lose  bool
	delay time.Duration

	shardOf func(name, key string) string
	shards  map[string]error
	keys    map[target]error
	stalled map[string]chan struct{} // by shard; closed when the stall ends
}

// everyShard is the shard whose stall makes all calls wait. No shard has this name.
const everyShard = "\x00"

func newFaults() faults {
	return faults{
		shardOf: func(string, string) string { return "" },
		shards:  map[string]error{}, keys: map[target]error{}, stalled: map[string]chan struct{}{},
	}
}

// Fail makes every method return err and do nothing, until Fail(nil). Calls of Listen that are running continue.
func (m *Memory) Fail(err error) { m.locked(func() { m.faults.err = err }) }

// LoseAnswers makes every method do its work and then return an error while on is true.
func (m *Memory) LoseAnswers(on bool) { m.locked(func() { m.faults.lose = on }) }

// Delay makes every call take d: half of it before the server does its work, half after. The default is 0.
func (m *Memory) Delay(d time.Duration) { m.locked(func() { m.faults.delay = d }) }

// Stall makes every method wait until its context ends, or until Stall(false), if on is true.
func (m *Memory) Stall(on bool) { m.StallShard(everyShard, on) }

// SetShards divides the Memory into shards, like a Redis Cluster; of returns the shard of a key. By default there is
// one shard, "". It must be called before a Store is made.
func (m *Memory) SetShards(of func(name, key string) string) {
	m.locked(func() { m.faults.shardOf = of })
}

// ShardOf implements [backend.Sharded].
func (m *Memory) ShardOf(name, key string) (shard string) {
	m.locked(func() { shard = m.faults.shardOf(name, key) })
	return shard
}

// FailShard makes every request about a key in that shard fail with err, until FailShard with nil.
func (m *Memory) FailShard(shard string, err error) {
	m.locked(func() { m.faults.shards[shard] = err })
}

// StallShard makes every call with a key in that shard wait until its context ends, or until StallShard(shard, false),
// if on is true.
func (m *Memory) StallShard(shard string, on bool) {
	m.locked(func() {
		switch end := m.faults.stalled[shard]; {
		case on && end == nil:
			m.faults.stalled[shard] = make(chan struct{})
		case !on && end != nil:
			close(end)
			delete(m.faults.stalled, shard)
		}
	})
}

// FailKey makes every request about one key fail with err, as if something else were stored under it, until FailKey
// with nil. If key is "", Load and Define of the limiter fail, too, with [backend.ErrDefinition].
func (m *Memory) FailKey(name, key string, err error) {
	m.locked(func() { m.faults.keys[target{name, key}] = err })
}

// Calls returns how often these methods were called, including failed calls. Without arguments it counts all methods.
func (m *Memory) Calls(methods ...string) (n int) {
	m.locked(func() {
		for _, method := range methods {
			n += m.calls[method]
		}
		if len(methods) == 0 {
			for _, calls := range m.calls {
				n += calls
			}
		}
	})
	return n
}

// call makes a round trip, in which f has the server to itself.
func (m *Memory) call(ctx context.Context, method string, f func()) error {
	m.locked(func() { m.calls[method]++ })
	if err := m.travel(ctx); err != nil {
		return err
	}
	if err := m.waitStalled(ctx, everyShard); err != nil {
		return err
	}
	var failed, lost error
	m.locked(func() {
		if failed = m.faults.err; failed != nil {
			return
		}
		if len(m.states)+len(m.leases) > m.sweepAt {
			m.sweep()
		}
		f()
		if m.faults.lose {
			lost = errAnswerLost
		}
	})
	if failed != nil {
		return failed
	}
	if err := m.travel(ctx); err != nil {
		return err
	}
	return lost
}

// travel takes half of the delay.
func (m *Memory) travel(ctx context.Context) error {
	var d time.Duration
	m.locked(func() { d = m.faults.delay / 2 })
	if d <= 0 || ctx.Err() != nil {
		return ctx.Err()
	}
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
	return ctx.Err()
}

// waitStalled waits while the shard is stalled.
func (m *Memory) waitStalled(ctx context.Context, shard string) error {
	for {
		var end chan struct{}
		m.locked(func() { end = m.faults.stalled[shard] })
		if end == nil {
			return nil
		}
		select {
		case <-end:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// reach waits while the shard of a key is stalled. If the key cannot be reached, it returns the outcome and the error.
// If the error is nil, the outcome has no meaning.
func (m *Memory) reach(ctx context.Context, name, key string) (backend.Outcome, error) {
	shard := m.ShardOf(name, key)
	if err := m.waitStalled(ctx, shard); err != nil {
		return backend.Unreachable, err
	}
	var shardErr, keyErr error
	m.locked(func() { shardErr, keyErr = m.faults.shards[shard], m.faults.keys[target{name, key}] })
	if shardErr != nil {
		return backend.Unreachable, shardErr
	}
	return backend.Failed, keyErr
}

// callDefinition is call for a method about the definition of a limiter.
func (m *Memory) callDefinition(ctx context.Context, method, name string, f func()) error {
	if outcome, err := m.reach(ctx, name, ""); err != nil {
		if outcome == backend.Failed {
			err = fmt.Errorf("%w: %w", backend.ErrDefinition, err)
		}
		return err
	}
	return m.call(ctx, method, f)
}

// roundTrip is call for the items of a Decide, Replace, Acquire, Renew or Release. do works on a copy of each item. The
// copies, with the answers, are written back only if the answer arrives.
func roundTrip[T any](ctx context.Context, m *Memory, method string, all []*T, do func(*T)) error {
	var reached []*T
	var answers []T
	for _, item := range all {
		name, key, outcome, why := fieldsOf(item)
		if o, err := m.reach(ctx, name, key); err != nil {
			*outcome, *why = o, err
			continue
		}
		reached, answers = append(reached, item), append(answers, *item)
	}
	err := m.call(ctx, method, func() {
		for i := range answers {
			do(&answers[i])
		}
	})
	if err != nil {
		return err
	}
	for i, item := range reached {
		*item = answers[i]
	}
	return nil
}

// fieldsOf returns the key that an item is about, and where its outcome is written.
func fieldsOf(item any) (name, key string, outcome *backend.Outcome, err *error) {
	switch i := item.(type) {
	case *backend.Batch:
		return i.Definition.Name, i.Key, &i.Outcome, &i.Err
	case *backend.Replacement:
		return i.Definition.Name, i.Key, &i.Outcome, &i.Err
	case *backend.LeaseRequest:
		return i.Definition.Name, i.Key, &i.Outcome, &i.Err
	}
	panic("storetest: not an item of a call")
}
