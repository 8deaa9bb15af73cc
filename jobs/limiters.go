package jobs

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/weir-go/weir/internal/validate"
)

// SemaphoreOptions configure a semaphore.
type SemaphoreOptions struct {
	// MaxCount is how many owners may hold the semaphore at a time, or each of its keys. It must be at least 1. If it is
	// lowered, those who hold it keep it, and others wait until fewer do.
	MaxCount int `json:"max_count" yaml:"max_count"`
}

// FixedWindowOptions configure a fixed window. Windows follow each other from the epoch on by the database's clock,
// whenever jobs come: hourly windows begin at the full hour UTC, weekly ones on Thursday.
//
// Two windows in a row can be used up at their common border. Use a sliding window where that is too much at once.
type FixedWindowOptions struct {
	// Limit is how many executions may begin in a window. It must be at least 1.
	Limit int `json:"limit" yaml:"limit"`
	// Interval is the length of a window. It must be at least 1 s and whole milliseconds.
	Interval time.Duration `json:"interval" yaml:"interval"`
}

// SlidingWindowOptions configure a sliding window. The time from the epoch on is divided into buckets, and in any Buckets
// of them in a row at most Limit executions begin. So no span of Interval less one bucket ever has more; a span of
// Interval that begins inside a bucket can. More buckets are finer.
type SlidingWindowOptions struct {
	// Limit is how many executions may begin in an interval. It must be at least 1.
	Limit int `json:"limit" yaml:"limit"`
	// Interval is the length of the window. It must be at least 1 s.
	Interval time.Duration `json:"interval" yaml:"interval"`
	// Buckets is into how many parts Interval is divided: at least 1, at most 1000. A bucket must be at least 1 s and
	// whole milliseconds. One bucket is a fixed window.
	Buckets int `json:"buckets" yaml:"buckets"`
}

// DynamicWindowOptions configure a dynamic window: a window for each key, and a capacity that they share. A key that is
// alone can use all of it; with others it gets its part.
//
// A key takes part while it has executions in its window, or reservations. Each gets Capacity divided by the number of
// keys that take part, at least MinLimit and at most MaxLimit; what is left over goes to the first keys in order. A key
// for which less than MinLimit would be left waits until another one leaves.
type DynamicWindowOptions struct {
	// Limit is the limit of each key. With Capacity it is a MinLimit and a MaxLimit in one: at most Capacity/Limit keys
	// take part at a time.
	Limit int `json:"limit,omitempty" yaml:"limit,omitempty"`
	// Interval is the length of the windows. It must be at least 1 s.
	Interval time.Duration `json:"interval" yaml:"interval"`
	// Buckets is into how many parts Interval is divided, as in [SlidingWindowOptions]. 0 and 1 are fixed windows.
	Buckets int `json:"buckets,omitempty" yaml:"buckets,omitempty"`
	// Capacity is the limit over all keys. If it is 0, there is none.
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

// limiterOptions are the options of one type of limiter.
type limiterOptions interface {
	limiterType() Type
	check(p *validate.Problems)
}

func (SemaphoreOptions) limiterType() Type     { return Semaphore }
func (FixedWindowOptions) limiterType() Type   { return FixedWindow }
func (SlidingWindowOptions) limiterType() Type { return SlidingWindow }
func (DynamicWindowOptions) limiterType() Type { return DynamicWindow }

func (o SemaphoreOptions) check(p *validate.Problems) { checkCount(p, "MaxCount", o.MaxCount, 1) }

func (o FixedWindowOptions) check(p *validate.Problems) {
	checkCount(p, "Limit", o.Limit, 1)
	checkWindow(p, o.Interval, 1, 1)
}

func (o SlidingWindowOptions) check(p *validate.Problems) {
	checkCount(p, "Limit", o.Limit, 1)
	checkWindow(p, o.Interval, o.Buckets, 1)
}

func (o DynamicWindowOptions) check(p *validate.Problems) {
	checkWindow(p, o.Interval, o.Buckets, 0)
	for _, f := range []struct {
		name string
		n    int
	}{{"Limit", o.Limit}, {"Capacity", o.Capacity}, {"MinLimit", o.MinLimit}, {"MaxLimit", o.MaxLimit}} {
		checkCount(p, f.name, f.n, 0)
	}
	if o.MaxKeys < 0 || o.MaxKeys > mostMaxKeys {
		p.Add("MaxKeys", o.MaxKeys, "must be 0 to %d", mostMaxKeys)
	}
	rebalanced := o.MinLimit != 0 || o.MaxLimit != 0
	if rebalanced && o.Limit > 0 {
		p.Add("Limit", o.Limit, "must be 0 with {MinLimit} or {MaxLimit}")
	}
	switch {
	case o.Capacity < 0:
	case o.Capacity == 0 && rebalanced:
		p.Add("Capacity", 0, "must be at least 1 with {MinLimit} or {MaxLimit}")
	case o.Capacity == 0 && o.Limit == 0:
		p.Add("Limit", 0, "must be at least 1 without {Capacity}")
	case o.Capacity > 0:
		checkAtMost(p, "Limit", o.Limit, "Capacity", o.Capacity)
		checkAtMost(p, "MinLimit", o.MinLimit, "Capacity", o.Capacity)
		checkAtMost(p, "MaxLimit", o.MaxLimit, "Capacity", o.Capacity)
		if o.MaxLimit > 0 && o.MinLimit <= o.Capacity {
			checkAtMost(p, "MinLimit", o.MinLimit, "MaxLimit", o.MaxLimit)
		}
	}
	if o.AtOnce && o.Capacity == 0 {
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
	version int64 // how many times the options have changed

	maxCount int64 // mutexes and semaphores

	bucket  int64 // µs
	buckets int64
	limit   int64 // of a key
	dynamic *dynamicRules
}

// dynamicRules say how the keys of a dynamic window share its capacity.
type dynamicRules struct {
	capacity int64 // 0: none
	min, max int64
	keys     int64 // how many may take part
	atOnce   bool
}

func (r rules) interval() int64 { return r.bucket * r.buckets }

// readRules reads the options in a row of jobs_limiters.
func readRules(t Type, text []byte) (rules, error) {
	r, err := decodeRules(t, text)
	if err == nil && r.maxCount < 1 && (r.bucket < 1 || r.limit < 1 || r.dynamic != nil && r.dynamic.capacity < 0) {
		err = fmt.Errorf("a count or a length is not positive")
	}
	if err != nil {
		return rules{}, fmt.Errorf("jobs: the options %.200s of a %s cannot be read: %w", text, t, err)
	}
	return r, nil
}

func decodeRules(t Type, text []byte) (rules, error) {
	switch t {
	case Mutex:
		return rules{maxCount: 1}, nil
	case Semaphore:
		var o SemaphoreOptions
		err := json.Unmarshal(text, &o)
		return rules{maxCount: int64(o.MaxCount)}, err
	case FixedWindow, SlidingWindow:
		var o SlidingWindowOptions // a fixed window has no Buckets
		err := json.Unmarshal(text, &o)
		buckets := int64(max(o.Buckets, 1))
		return rules{bucket: o.Interval.Microseconds() / buckets, buckets: buckets, limit: int64(o.Limit)}, err
	case DynamicWindow:
		var o DynamicWindowOptions
		err := json.Unmarshal(text, &o)
		return o.rules(), err
	}
	return rules{}, fmt.Errorf("the type is unknown: a newer program has set it")
}

func (o DynamicWindowOptions) rules() rules {
	buckets := int64(max(o.Buckets, 1))
	d := &dynamicRules{capacity: int64(o.Capacity), keys: defaultMaxKeys, atOnce: o.AtOnce}
	if o.MaxKeys > 0 {
		d.keys = int64(o.MaxKeys)
	}
	switch {
	case o.Limit > 0:
		d.min, d.max = int64(o.Limit), int64(o.Limit)
	default:
		d.min, d.max = int64(max(o.MinLimit, 1)), int64(o.MaxLimit)
		if d.max == 0 {
			d.max = d.capacity
		}
	}
	if d.capacity > 0 {
		d.keys = min(d.keys, d.capacity/d.min)
	}
	return rules{bucket: o.Interval.Microseconds() / buckets, buckets: buckets, limit: d.max, dynamic: d}
}
