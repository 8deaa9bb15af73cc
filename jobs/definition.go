package jobs

import (
	"cmp"
	"encoding/json"
	"fmt"
	"time"

	"github.com/weir-go/weir/internal/validate"
	"github.com/weir-go/weir/jobs/internal/window"
)

// A Definition sets a limiter, for [Throttler.Set] and [Config]. Exactly one of the first four fields is its name, and the other fields
// are options of that type of limiter.
type Definition struct {
	// Semaphore names a semaphore, which MaxCount owners may hold at a time.
	Semaphore string `json:"semaphore,omitempty" yaml:"semaphore,omitempty"`
	// FixedWindow names a fixed window. Windows follow each other from the epoch on by the database's clock, whenever jobs
	// come: hourly windows begin at the full hour UTC, weekly ones on Thursday. Two windows in a row can be used up at their
	// common border. Use a sliding window where that is too much at once.
	FixedWindow string `json:"fixed_window,omitempty" yaml:"fixed_window,omitempty"`
	// SlidingWindow names a sliding window. The time from the epoch on is divided into buckets, and in any Buckets of them in
	// a row at most Limit executions begin. So no span of Interval less one bucket ever has more; a span of Interval that
	// begins inside a bucket can. More buckets are finer.
	SlidingWindow string `json:"sliding_window,omitempty" yaml:"sliding_window,omitempty"`
	// DynamicWindow names a dynamic window: a window for each key, and a Capacity that they share. A key that is alone can use
	// all of it; with others it gets its part.
	//
	// A key takes part while it has executions in its window, or reservations. Each gets Capacity divided by the number of
	// keys that take part, at least MinLimit and at most MaxLimit; what is left over goes to the first keys in order. A key
	// for which less than MinLimit would be left waits until another one leaves.
	DynamicWindow string `json:"dynamic_window,omitempty" yaml:"dynamic_window,omitempty"`

	// MaxCount is how many owners may hold a semaphore at a time, or each of its keys. It must be at least 1. If it is
	// lowered, those who hold it keep it, and others wait until fewer do.
	MaxCount int `json:"max_count,omitempty" yaml:"max_count,omitempty"`

	// Limit is how many executions may begin in a window. It must be at least 1. Of a dynamic window, it is the limit of each
	// key: with Capacity a MinLimit and a MaxLimit in one, so that at most Capacity/Limit keys take part at a time.
	Limit int `json:"limit,omitempty" yaml:"limit,omitempty"`
	// Interval is the length of a window. It must be at least 1 s and whole milliseconds.
	Interval time.Duration `json:"interval,omitempty" yaml:"interval,omitempty"`
	// Buckets is into how many parts the Interval of a sliding or dynamic window is divided: at least 1, at most 1000. A
	// bucket must be at least 1 s and whole milliseconds. One bucket is a fixed window, and so is 0 of a dynamic window.
	Buckets int `json:"buckets,omitempty" yaml:"buckets,omitempty"`

	// Capacity is the limit over all keys of a dynamic window. If it is 0, there is none.
	Capacity int `json:"capacity,omitempty" yaml:"capacity,omitempty"`
	// MinLimit and MaxLimit, instead of Limit, are the least and the most that a key gets. They need Capacity. If MaxLimit
	// is 0, it is Capacity; if MinLimit is 0, it is 1.
	MinLimit int `json:"min_limit,omitempty" yaml:"min_limit,omitempty"`
	MaxLimit int `json:"max_limit,omitempty" yaml:"max_limit,omitempty"`
	// MaxKeys bounds how many keys take part at a time; another one waits. If it is 0, it is 1000.
	MaxKeys int `json:"max_keys,omitempty" yaml:"max_keys,omitempty"`
	// AtOnce lets a key that comes late have its part at once, although others have used the capacity up: there can be more
	// than Capacity until the window has moved on. If false, it waits for that.
	AtOnce bool `json:"at_once,omitempty" yaml:"at_once,omitempty"`
}

const (
	maxCount       = 1_000_000_000
	maxBuckets     = 1000
	maxWindow      = 10 * 365 * 24 * time.Hour
	defaultMaxKeys = 1000
	mostMaxKeys    = 10_000
)

// name returns the limiter that d names.
func (d Definition) name(p *validate.Problems) (ref Ref, ok bool) {
	return oneName(p, nameFields[1:], d.Semaphore, d.FixedWindow, d.SlidingWindow, d.DynamicWindow)
}

// options returns d without its name, as it is stored.
func (d Definition) options() Definition {
	d.Semaphore, d.FixedWindow, d.SlidingWindow, d.DynamicWindow = "", "", "", ""
	return d
}

// check returns the limiter that d sets, and adds what is wrong with d to p.
func (d Definition) check(p *validate.Problems) (ref Ref, ok bool) {
	if ref, ok = d.name(p); !ok {
		return ref, false
	}
	may := Definition{Limit: d.Limit, Interval: d.Interval}
	switch ref.Type {
	case Semaphore:
		may = Definition{MaxCount: d.MaxCount}
		checkCount(p, "MaxCount", d.MaxCount, 1)
	case FixedWindow:
		checkCount(p, "Limit", d.Limit, 1)
		checkWindow(p, d.Interval, 1, 1)
	case SlidingWindow:
		may.Buckets = d.Buckets
		checkCount(p, "Limit", d.Limit, 1)
		checkWindow(p, d.Interval, d.Buckets, 1)
	default:
		may = d.options()
		may.MaxCount = 0
		d.checkDynamic(p)
	}
	if may != d.options() {
		p.Add("", nil, "must have only the options of a %s", ref.Type.words())
	}
	return ref, true
}

func (d Definition) checkDynamic(p *validate.Problems) {
	checkWindow(p, d.Interval, d.Buckets, 0)
	for _, f := range []struct {
		name string
		n    int
	}{{"Limit", d.Limit}, {"Capacity", d.Capacity}, {"MinLimit", d.MinLimit}, {"MaxLimit", d.MaxLimit}} {
		checkCount(p, f.name, f.n, 0)
		if d.Capacity > 0 {
			checkAtMost(p, f.name, f.n, "Capacity", d.Capacity)
		}
	}
	if d.MaxKeys < 0 || d.MaxKeys > mostMaxKeys {
		p.Add("MaxKeys", d.MaxKeys, "must be 0 to %d", mostMaxKeys)
	}
	rebalanced := d.MinLimit != 0 || d.MaxLimit != 0
	if rebalanced && d.Limit > 0 {
		p.Add("Limit", d.Limit, "must be 0 with {MinLimit} or {MaxLimit}")
	}
	switch {
	case d.Capacity < 0:
	case d.Capacity == 0 && rebalanced:
		p.Add("Capacity", 0, "must be at least 1 with {MinLimit} or {MaxLimit}")
	case d.Capacity == 0 && d.Limit == 0:
		p.Add("Limit", 0, "must be at least 1 without {Capacity}")
	case d.Capacity > 0 && d.MaxLimit > 0 && d.MinLimit <= d.Capacity:
		checkAtMost(p, "MinLimit", d.MinLimit, "MaxLimit", d.MaxLimit)
	}
	if d.AtOnce && d.Capacity == 0 {
		p.Add("Capacity", 0, "must be at least 1 with {AtOnce}")
	}
}

// checkCount adds a problem if n is not between least and maxCount.
func checkCount(p *validate.Problems, field string, n, least int) {
	if n < least || n > maxCount {
		p.Add(field, n, "must be %d to %d", least, maxCount)
	}
}

// checkAtMost adds a problem if n is above the value of the field other.
func checkAtMost(p *validate.Problems, field string, n int, other string, value int) {
	if n > value {
		p.Add(field, n, "must be at most {%s}, which is %d", other, value)
	}
}

// checkWindow adds the problems of an interval in at least that many buckets.
func checkWindow(p *validate.Problems, interval time.Duration, buckets, least int) {
	long := interval >= time.Second && interval <= maxWindow
	if !long {
		p.Add("Interval", interval, "must be 1s to %v", maxWindow)
	}
	switch {
	case buckets < least || buckets > maxBuckets:
		p.Add("Buckets", buckets, "must be %d to %d", least, maxBuckets)
	case !long:
	case buckets > 1 && interval/time.Duration(buckets) < time.Second:
		p.Add("Buckets", buckets, "must be at most %d, so that {Interval}, which is %v, has buckets of at least 1s", interval/time.Second, interval)
	case interval%(time.Duration(max(buckets, 1))*time.Millisecond) != 0:
		p.Add("Interval", interval, "must be whole milliseconds when divided by {Buckets}")
	}
}

// rules are the options of a limiter, as decisions need them.
type rules struct {
	version  int64 // how many times the options have changed
	maxCount int64 // mutexes and semaphores
	window   window.Rules
}

// readRules reads the options in a row of jobs_limiters.
func readRules(t Type, text []byte) (rules, error) {
	if t == Mutex {
		return rules{maxCount: 1}, nil
	}
	var d Definition
	err := json.Unmarshal(text, &d)
	r := d.rules(t)
	switch {
	case err != nil:
	case t == Semaphore:
		if r.maxCount < 1 {
			err = fmt.Errorf("the count is not positive")
		}
	case t != FixedWindow && t != SlidingWindow && t != DynamicWindow:
		err = fmt.Errorf("the type is unknown: a newer program has set it")
	case r.window.Bucket < 1 || r.window.Limit < 1 || d.Capacity < 0:
		err = fmt.Errorf("a count or a length is not positive")
	}
	if err != nil {
		return rules{}, fmt.Errorf("jobs: the options %.200s of a %s cannot be read: %w", text, t, err)
	}
	return r, nil
}

// rules returns the rules of a limiter of the type with the options of d.
func (d Definition) rules(t Type) rules {
	if t == Semaphore {
		return rules{maxCount: int64(d.MaxCount)}
	}
	buckets := int64(max(d.Buckets, 1))
	r := window.Rules{Bucket: d.Interval.Microseconds() / buckets, Buckets: buckets, Limit: int64(d.Limit)}
	if t == DynamicWindow {
		r.Shares = d.shares()
		r.Limit = r.Shares.Max
	}
	return rules{window: r}
}

func (d Definition) shares() *window.Shares {
	s := &window.Shares{Capacity: int64(d.Capacity), Min: int64(d.Limit), Max: int64(d.Limit), Keys: int64(cmp.Or(d.MaxKeys, defaultMaxKeys)), AtOnce: d.AtOnce}
	if d.Limit <= 0 {
		s.Min, s.Max = int64(max(d.MinLimit, 1)), int64(cmp.Or(d.MaxLimit, d.Capacity))
	}
	if s.Capacity > 0 {
		s.Keys = min(s.Keys, s.Capacity/s.Min)
	}
	return s
}
