package store

import (
	"fmt"
	"log/slog"
	"strings"
	"time"
)

// String says in one line how the store is: "there, listening", for example.
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
		for _, p := range h.Shards {
			if p.Err != nil {
				away++
			}
		}
		fmt.Fprintf(&b, ", %d of %d parts away", away, len(h.Shards))
	}
	return b.String()
}

// LogValue implements [slog.LogValuer].
func (h Health) LogValue() slog.Value {
	attrs := []slog.Attr{slog.Bool("away", h.Err != nil), slog.Bool("listening", h.Listening)}
	if h.Err != nil {
		attrs = append(attrs, slog.Any("error", h.Err), slog.Time("since", h.Since))
	}
	for _, p := range h.Shards {
		if p.Err != nil {
			attrs = append(attrs, slog.Any("part "+p.Shard, p))
		}
	}
	return slog.GroupValue(attrs...)
}

// String says in one line how the part is.
func (p ShardHealth) String() string {
	if p.Err == nil {
		return p.Shard + " is there"
	}
	return fmt.Sprintf("%s is away since %s: %v", p.Shard, p.Since.Format(time.RFC3339), p.Err)
}

// LogValue implements [slog.LogValuer].
func (p ShardHealth) LogValue() slog.Value { return slog.StringValue(p.String()) }

// String has all counts in one line.
func (c Counters) String() string {
	return fmt.Sprintf("%d calls, %d failed, %d decisions, %d cached, %d lent, %d without the store",
		c.Calls, c.Failures, c.Decisions, c.Cached, c.FromBlocks, c.Outages)
}

// LogValue implements [slog.LogValuer].
func (c Counters) LogValue() slog.Value {
	return slog.GroupValue(
		slog.Int64("calls", c.Calls), slog.Int64("failures", c.Failures), slog.Int64("decisions", c.Decisions),
		slog.Int64("cached", c.Cached), slog.Int64("lent", c.FromBlocks), slog.Int64("outages", c.Outages),
	)
}

// String says in one line what has happened.
func (e Event) String() string {
	var b strings.Builder
	b.WriteString(e.Kind.String())
	for _, a := range e.attrs() {
		fmt.Fprintf(&b, ", %s %v", a.Key, a.Value)
	}
	return b.String()
}

// LogValue implements [slog.LogValuer].
func (e Event) LogValue() slog.Value {
	return slog.GroupValue(append([]slog.Attr{slog.String("kind", e.Kind.String())}, e.attrs()...)...)
}

// attrs are the fields that are set.
func (e Event) attrs() (set []slog.Attr) {
	if e.Limiter != "" {
		set = append(set, slog.String("limiter", e.Limiter))
	}
	if e.Key != "" {
		set = append(set, slog.String("key", fmt.Sprintf("%q", e.Key)))
	}
	if e.Shard != "" {
		set = append(set, slog.String("part", e.Shard))
	}
	if e.Permits != 0 {
		set = append(set, slog.Int64("permits", e.Permits))
	}
	if e.Away != 0 {
		set = append(set, slog.Duration("away", e.Away))
	}
	if e.Err != nil {
		set = append(set, slog.Any("error", e.Err))
	}
	return set
}
