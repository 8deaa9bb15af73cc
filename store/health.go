package store

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"
)

// Health reports whether the store is available.
type Health struct {
	// Err is why the store is away, or nil. If several shards are away, Err is of the one that was lost first.
	Err   error
	Since time.Time // when the store or that shard was lost
	// Listening reports whether the store sends notices of what happens at other instances.
	Listening bool
	// Shards are the shards that were used so far, sorted by name. Shards is empty if the store has no shards, as without
	// a Redis Cluster. Keys whose shard is not known yet have no entry; while they are away, Err says why.
	Shards []ShardHealth
}

// ShardHealth reports whether one shard is available; see [backend.Sharded].
type ShardHealth struct {
	Shard string    // its name
	Err   error     // why the shard is away, or nil
	Since time.Time // when it was lost
}

// Health returns at once, without a call to the store.
func (s *Store) Health() Health {
	h := Health{Listening: s.listener.connected.Load()}
	for _, one := range s.calls.Health() {
		if one.Err != nil && (h.Err == nil || one.Since.Before(h.Since)) {
			h.Err, h.Since = one.Err, one.Since
		}
		if one.Shard != "" {
			h.Shards = append(h.Shards, ShardHealth(one))
		}
	}
	slices.SortFunc(h.Shards, func(a, b ShardHealth) int { return strings.Compare(a.Shard, b.Shard) })
	return h
}

// String returns the health in one line, such as "there, listening".
func (h Health) String() string {
	var b strings.Builder
	if h.Err == nil {
		b.WriteString("there")
	} else {
		fmt.Fprintf(&b, "away since %s: %v", h.Since.Format(time.RFC3339), h.Err)
	}
	if h.Listening {
		b.WriteString(", listening")
	}
	if len(h.Shards) > 0 {
		away := 0
		for _, sh := range h.Shards {
			if sh.Err != nil {
				away++
			}
		}
		fmt.Fprintf(&b, ", %d of %d shards away", away, len(h.Shards))
	}
	return b.String()
}

// LogValue implements [slog.LogValuer].
func (h Health) LogValue() slog.Value {
	attrs := []slog.Attr{slog.Bool("away", h.Err != nil), slog.Bool("listening", h.Listening)}
	if h.Err != nil {
		attrs = append(attrs, slog.Any("error", h.Err), slog.Time("since", h.Since))
	}
	for _, sh := range h.Shards {
		if sh.Err != nil {
			attrs = append(attrs, slog.Any("shard "+sh.Shard, sh))
		}
	}
	return slog.GroupValue(attrs...)
}

// String returns the shard's health in one line.
func (h ShardHealth) String() string {
	if h.Err == nil {
		return h.Shard + " is there"
	}
	return fmt.Sprintf("%s is away since %s: %v", h.Shard, h.Since.Format(time.RFC3339), h.Err)
}

// LogValue implements [slog.LogValuer].
func (h ShardHealth) LogValue() slog.Value { return slog.StringValue(h.String()) }

// Counters count what a [Store] has done since it was made.
//
// Calls includes what decides about no caller: permits given back, leases renewed, Peek, Statistics, probes, and calls that
// are sent again because the limits were changed meanwhile. Decisions, Cached, FromBlocks and Outages count each answer to a
// request for permits once, by what has decided. A call of Acquire that waits is decided several times: when it joins the
// queue, and each time it is asked for again until it gets its permits. A Charge of another number than 0 is one decision;
// one that fails is none.
type Counters struct {
	Calls      int64 // round trips for decisions, leases and definitions
	Failures   int64 // round trips that failed
	Decisions  int64 // grants, rejections and charges by the store
	Cached     int64 // rejections answered from memory
	FromBlocks int64 // grants from borrowed blocks
	Outages    int64 // grants, rejections and charges by the outage policy
}

// Counters returns a snapshot.
func (s *Store) Counters() Counters {
	return Counters{
		Calls: s.calls.Made.Load(), Failures: s.calls.Failed.Load(), Decisions: s.count.decisions.Load(),
		Cached: s.count.cached.Load(), FromBlocks: s.count.fromBlocks.Load(), Outages: s.count.outages.Load(),
	}
}

// String returns all counts in one line.
func (c Counters) String() string {
	return fmt.Sprintf("%d calls, %d failed, %d decisions, %d cached, %d from blocks, %d without the store",
		c.Calls, c.Failures, c.Decisions, c.Cached, c.FromBlocks, c.Outages)
}

// LogValue implements [slog.LogValuer].
func (c Counters) LogValue() slog.Value {
	return slog.GroupValue(
		slog.Int64("calls", c.Calls), slog.Int64("failures", c.Failures), slog.Int64("decisions", c.Decisions),
		slog.Int64("cached", c.Cached), slog.Int64("from_blocks", c.FromBlocks), slog.Int64("outages", c.Outages),
	)
}
