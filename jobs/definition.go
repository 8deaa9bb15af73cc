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

	// Limit is how many executions may begin in a fixed or sliding window, or in that of each key. It must be at least 1.
	Limit int `json:"limit,omitempty" yaml:"limit,omitempty"`
	// Interval is the length of a window. It must be at least 1 s and whole milliseconds.
	Interval time.Duration `json:"interval,omitempty" yaml:"interval,omitempty"`
	// Buckets is into how many parts the Interval of a sliding or dynamic window is divided: at least 1, at most 1000. A
	// bucket must be at least 1 s and whole milliseconds. One bucket is a fixed window, and so is 0 of a dynamic window.
	Buckets int `json:"buckets,omitempty" yaml:"buckets,omitempty"`

	// Capacity is the limit over all keys of a dynamic window. It must be at least 1. Where keys need not share, use a fixed or
	// sliding window with a [Limit.Key].
	Capacity int `json:"capacity,omitempty" yaml:"capacity,omitempty"`
	// MinLimit and MaxLimit are the least and the most that a key gets of the Capacity. If MinLimit is 0, it is 1; if MaxLimit
	// is 0, it is Capacity.
	MinLimit int `json:"min_limit,omitempty" yaml:"min_limit,omitempty"`
	MaxLimit int `json:"max_limit,omitempty" yaml:"max_limit,omitempty"`
	// MaxKeys bounds how many keys take part at a time; another one waits. If it is 0, it is 1000.
	MaxKeys int `json:"max_keys,omitempty" yaml:"max_keys,omitempty"`
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
		may.MaxCount, may.Limit = 0, 0
		d.checkDynamic(p)
	}
	if may != d.options() {
		p.Add("", nil, "must have only the options of a %s", ref.Type.words())
	}
	return ref, true
}

func (d Definition) checkDynamic(p *validate.Problems) {
	checkWindow(p, d.Interval, d.Buckets, 0)
	checkCount(p, "Capacity", d.Capacity, 1)
	for _, limit := range []struct {
		field string
		n     int
	}{{"MinLimit", d.MinLimit}, {"MaxLimit", d.MaxLimit}} {
		if limit.n < 0 || limit.n > max(d.Capacity, 0) {
			p.Add(limit.field, limit.n, "must be 0 to {Capacity}, which is %d", d.Capacity)
		}
	}
	if d.MaxLimit > 0 && d.MinLimit > d.MaxLimit {
		p.Add("MinLimit", d.MinLimit, "must be at most {MaxLimit}, which is %d", d.MaxLimit)
	}
	if d.MaxKeys < 0 || d.MaxKeys > mostMaxKeys {
		p.Add("MaxKeys", d.MaxKeys, "must be 0 to %d", mostMaxKeys)
	}
}

// checkCount adds a problem if n is not between least and maxCount.
func checkCount(p *validate.Problems, field string, n, least int) {
	if n < least || n > maxCount {
		p.Add(field, n, "must be %d to %d", least, maxCount)
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
	case t == DynamicWindow && d.Limit != 0:
		err = fmt.Errorf("an older program has set a limit for each key: set the capacity")
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
		capacity, least := int64(d.Capacity), int64(max(d.MinLimit, 1))
		r.Limit = int64(cmp.Or(d.MaxLimit, d.Capacity))
		r.Shares = &window.Shares{Capacity: capacity, Min: least, Keys: min(int64(cmp.Or(d.MaxKeys, defaultMaxKeys)), capacity/least)}
	}
	return rules{window: r}
}
