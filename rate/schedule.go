package rate

import (
	"math"
	"time"

	"github.com/weir-go/weir/internal/saturate"
)

// A Schedule is how many permits there are and when they come back, in units of time of the caller's choice: nanoseconds in a
// process, microseconds in a store. Line k of its grid is at Anchor + k × Period. On each line of a bucket, up to Refill permits
// come back, and all of them on each line of a fixed window. What was taken in a segment of a sliding window comes back
// Segments lines after the line with which the segment began. The lines of a calendar are where its windows begin, each of which is
// a segment; Anchor is when 1970 began in UTC.
type Schedule struct {
	Kind     Kind  `json:"kind"`
	Permits  int64 `json:"permits"`            // the most that can be available
	Refill   int64 `json:"refill,omitempty"`   // token bucket
	Period   int64 `json:"period,omitempty"`   // between two lines: of a sliding window, its segment; of a calendar, its longest window
	Segments int64 `json:"segments,omitempty"` // sliding window; calendar: 1
	Anchor   int64 `json:"anchor,omitempty"`

	Every Cycle  `json:"every,omitempty"` // calendar, but for one that [Schedule.Window] returns
	Zone  string `json:"zone,omitempty"`
}

// Quota returns how many permits there are in which window, which is what headers and pages tell. That of a token bucket is how
// long an empty bucket takes to be full, that of a calendar is the longest one without changes of clocks: 31 days for a month, 366
// for a year. Of permits that are lent, the window is 0.
func (l Limits) Quota() (permits int64, window time.Duration) {
	return int64(l.Permits), l.TimeToRestore(int64(l.Permits))
}

// TimeToRestore returns how long it takes at most until that many missing permits have come back: 0 if they are lent.
func (l Limits) TimeToRestore(missing int64) time.Duration {
	g := l.Schedule(1)
	periods := max(g.Segments, 1)
	if l.Kind == TokenBucket {
		if l.Refill < 1 {
			return 0
		}
		periods = (missing-1)/int64(l.Refill) + 1
	}
	if missing <= 0 || g.Period <= 0 {
		return 0
	}
	return time.Duration(saturate.Mul(periods, g.Period))
}

// Schedule returns when the permits of l come back, in units of time of that length. The Anchor is 0.
func (l Limits) Schedule(unit time.Duration) Schedule {
	g := Schedule{
		Kind: l.Kind, Permits: int64(l.Permits), Refill: int64(l.Refill), Segments: int64(l.Segments), Every: l.Every, Zone: l.Zone,
		Period: int64(l.Period / time.Duration(max(l.Segments, 1)) / unit),
	}
	if l.Kind == Calendar {
		g.Period, g.Segments = int64(l.Every.longest()/unit), 1
	}
	return g
}

// Limits is the inverse of [Limits.Schedule]. There is no queue.
func (g *Schedule) Limits(unit time.Duration) Limits {
	l := Limits{Kind: g.Kind, Permits: toInt(g.Permits), Refill: toInt(g.Refill), Every: g.Every, Zone: g.Zone}
	if g.Kind != Calendar {
		l.Segments = toInt(g.Segments)
		l.Period = time.Duration(saturate.Mul(saturate.Mul(g.Period, max(g.Segments, 1)), int64(unit)))
	}
	return l
}

// toInt converts n, which can be from a machine with larger ints.
func toInt(n int64) int { return int(min(n, math.MaxInt)) }

// LineAt returns the last line that is reached at the moment t.
func (g *Schedule) LineAt(t int64) int64 {
	if g.Every != 0 {
		return g.calendarLineAt(t)
	}
	from := t - g.Anchor
	line := from / g.Period
	if line*g.Period > from {
		line--
	}
	return line
}

// TimeOf returns when a line is reached.
func (g *Schedule) TimeOf(line int64) int64 {
	if g.Every != 0 {
		return g.calendarTimeOf(line)
	}
	return saturate.Add(g.Anchor, saturate.Mul(line, g.Period))
}

// segmented reports whether permits come back by segments. A calendar has one.
func (g *Schedule) segmented() bool { return g.Segments > 0 }

// Usable reports whether a state can be computed by g: its permits come back with time, and its numbers are no nonsense. This
// machine knows the time zone.
func (g *Schedule) Usable() bool {
	_, err := location(g.Zone)
	known := g.Kind > 0 && int(g.Kind) < len(kindTexts.Texts) && g.Kind != Concurrency
	return known && g.Period > 0 && g.Refill >= 0 && g.segmented() == (g.Kind == SlidingWindow || g.Kind == Calendar) && (g.Every == 0 || g.Every.valid()) && err == nil
}

// Follow lets the lines of g begin at the current line of old, which was at begun, when g comes into force at the moment at. If the
// next line of g would be past by then, they begin at that moment instead, and reached is true: that line brings what a line brings.
// The lines of a calendar are where they are.
func (g *Schedule) Follow(old *Schedule, begun, at int64) (reached bool) {
	switch {
	case g.Every != 0 && old.Every != 0:
		g.Anchor = old.Anchor
	case g.Every != 0:
	case at-begun >= g.Period:
		g.Anchor = at
		return true
	default:
		g.Anchor = begun
	}
	return false
}

// SameLines reports whether each line of g is at the same time as the line of other with the same number and brings as many
// permits. If so, the receipts of one are receipts of the other.
func (g *Schedule) SameLines(other *Schedule) bool {
	a, b := *g, *other
	a.Permits, b.Permits = 0, 0
	return a == b
}

// second returns how many units of time a second has; of a broken definition in a store, 1.
func (g *Schedule) second() int64 { return max(g.Period/int64(g.Every.longest()/time.Second), 1) }

// calendarLineAt is LineAt for a calendar.
func (g *Schedule) calendarLineAt(t int64) int64 {
	in, _ := location(g.Zone)
	at := floor(saturate.Add(t, -g.Anchor), g.second())
	_, offset := time.Unix(at, 0).In(in).Zone()
	line := g.Every.lineOf(floor(at+int64(offset), secondsOfDay))
	for begin(g.Every.firstDay(line+1), in) <= at { // clocks have gone back to the line before, or skipped one
		line++
	}
	return line
}

// calendarTimeOf is TimeOf for a calendar.
func (g *Schedule) calendarTimeOf(line int64) int64 {
	in, _ := location(g.Zone)
	return saturate.Add(g.Anchor, saturate.Mul(begin(g.Every.firstDay(line), in), g.second()))
}

// UntilNext returns how long after t the next window of a calendar begins, and 0 for limits of other kinds.
func (l Limits) UntilNext(t time.Time) time.Duration {
	if l.Kind != Calendar {
		return 0
	}
	g, now := l.Schedule(1), t.UnixNano()
	return time.Duration(g.TimeOf(g.LineAt(now)+1) - now)
}

// Window returns a schedule of lines at equal distances that has the line and the one after it where g has them: g itself
// unless it is of a calendar. A store that knows no calendars decides by it from one line to the other.
func (g *Schedule) Window(line int64) Schedule {
	w := *g
	if g.Every != 0 {
		at := g.TimeOf(line)
		w.Period = g.TimeOf(line+1) - at
		w.Anchor, w.Every, w.Zone = at-line*w.Period, 0, ""
	}
	return w
}
