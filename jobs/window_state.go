package jobs

import (
	"fmt"
	"strconv"
	"strings"
)

// A stored state with higher times or counts is corrupt. Within these bounds nothing overflows.
const (
	maxTime    = 1 << 59 // µs
	maxCounted = 1 << 40
)

// readWindow reads the state of a key at a time, in µs since the epoch, without what no longer has an effect and without
// reservations that have lapsed.
//
// If the length of the limiter's buckets has changed since, the counts are moved to new buckets. Executions are counted in
// the last new bucket that overlaps the old one and has begun, so that none leaves the window early. Reservations go to the
// new bucket in which the old one begins, because waiterRow.bucket names that time.
func readWindow(state string, r rules, now int64) (*window, error) {
	w := &window{width: r.bucket, buckets: r.buckets, now: now / r.bucket}
	if state == "" {
		return w, nil
	}
	old, rest, ok := cutNumber(state, maxTime)
	if !ok || old == 0 {
		return nil, fmt.Errorf("jobs: the state %.100q of a window cannot be read", state)
	}
	w.changed = old != r.bucket
	w.filled = make([]bucket, 0, strings.Count(rest, " ")+2)
	for at := int64(0); rest != ""; {
		var n [3]int64
		for i, most := range [3]int64{max(maxTime/old-2, 0) - at, maxCounted, maxCounted} {
			if !ok || rest == "" || rest[0] != " ::"[i] {
				return nil, fmt.Errorf("jobs: the state %.100q of a window cannot be read", state)
			}
			n[i], rest, ok = cutNumber(rest[1:], most)
		}
		if !ok {
			return nil, fmt.Errorf("jobs: the state %.100q of a window cannot be read", state)
		}
		at += n[0]
		if old == r.bucket {
			w.add(bucket{at: at, started: n[1], reserved: n[2]})
			continue
		}
		begun, last := at*old/r.bucket, ((at+1)*old-1)/r.bucket
		if begun <= w.now {
			last = min(last, w.now)
		}
		w.add(bucket{at: last, started: n[1]})
		w.add(bucket{at: begun, reserved: n[2]})
	}
	w.prune()
	w.lapse(now)
	return w, nil
}

// cutNumber returns the number at the beginning of a text, and the rest. ok is false if there is none or it is above most.
func cutNumber(text string, most int64) (n int64, rest string, ok bool) {
	i := 0
	for ; i < len(text) && '0' <= text[i] && text[i] <= '9'; i++ {
		if n = n*10 + int64(text[i]-'0'); n > most {
			return 0, "", false
		}
	}
	return n, text[i:], i > 0
}

// String returns the state for readWindow: the width, then at:started:reserved for each bucket, where at is the distance
// from the bucket before. It is empty if all counts are 0.
func (w *window) String() string {
	var text []byte
	last := int64(0)
	for _, b := range w.filled {
		if b.started == 0 && b.reserved == 0 {
			continue
		}
		if len(text) == 0 {
			text = strconv.AppendInt(text, w.width, 10)
		}
		text = append(text, ' ')
		text = strconv.AppendInt(text, b.at-last, 10)
		text = append(text, ':')
		text = strconv.AppendInt(text, b.started, 10)
		text = append(text, ':')
		text = strconv.AppendInt(text, b.reserved, 10)
		last = b.at
	}
	return string(text)
}
