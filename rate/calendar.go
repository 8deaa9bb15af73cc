package rate

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/weir-go/weir/internal/textenum"
)

// A Cycle is how often all permits of a [Calendar] come back: at the first moment of each day, week, month or year. It is
// written "day", "week", "month", "year", "week from sunday" or "month from 15" in configuration files. The zero Cycle is no
// cycle.
type Cycle uint8

// The cycles that begin where those of most calendars do. [WeekFrom] and [MonthFrom] return the others.
const (
	Day   Cycle = 1
	Week  Cycle = 2 // from Monday
	Month Cycle = 9 // from the first day
	Year  Cycle = 40
)

// WeekFrom returns the week that begins with that day, from [time.Sunday] to [time.Saturday].
func WeekFrom(d time.Weekday) Cycle { return Week + Cycle(d+6)%7 } //nolint:gosec // Monday is 0, Sunday is 6

// MonthFrom returns the month that begins with that day, from 1 to 31, such as the billing month of a contract. A month without
// that day begins with its last day, and the next one with that day again. With another number the Cycle is invalid, and so are
// options with it.
func MonthFrom(day int) Cycle {
	if day < 1 || day > 31 {
		return invalidCycle
	}
	return Month + Cycle(day-1)
}

const invalidCycle Cycle = 255

var cycleTexts = textenum.Texts[Cycle]{Package: "rate", Type: "Cycle", Texts: func() []string {
	texts := make([]string, Year+1)
	for d := range time.Weekday(7) {
		texts[WeekFrom(d)] = "week from " + string(d.String()[0]+'a'-'A') + d.String()[1:]
	}
	for d := range 31 {
		texts[MonthFrom(d+1)] = fmt.Sprint("month from ", d+1)
	}
	texts[Day], texts[Week], texts[Month], texts[Year] = "day", "week", "month", "year"
	return texts
}()}

// String returns the text form, or Cycle(n) for any other number.
func (c Cycle) String() string { return cycleTexts.String(c) }

const cycleRule = `must be day, week, month or year, or one such as week from sunday or month from 15`

// valid reports whether c is a cycle.
func (c Cycle) valid() bool { return c > 0 && cycleTexts.Has(c) }

// MarshalText implements [encoding.TextMarshaler].
func (c Cycle) MarshalText() ([]byte, error) {
	if !c.valid() {
		return nil, fmt.Errorf("%s, is %v", cycleRule, c)
	}
	return cycleTexts.Marshal(c)
}

// UnmarshalText implements [encoding.TextUnmarshaler].
func (c *Cycle) UnmarshalText(text []byte) error {
	switch string(text) {
	case "week from monday":
		*c = Week
		return nil
	case "month from 1":
		*c = Month
		return nil
	}
	if len(text) == 0 || cycleTexts.Unmarshal(c, text) != nil {
		return fmt.Errorf("%s, found %q", cycleRule, text)
	}
	return nil
}

const day = 24 * time.Hour

// longest returns how long a cycle can be if no clock changes.
func (c Cycle) longest() time.Duration {
	switch {
	case c == Day:
		return day
	case c < Month:
		return 7 * day
	case c < Year:
		return 31 * day
	default:
		return 366 * day
	}
}

// The days of a calendar are numbered from 1970-01-01 on, and so are its lines: those of months by 12 for each year.

// firstDay returns the day with which a line begins.
func (c Cycle) firstDay(line int64) int64 {
	line = min(max(line, -maxLine), maxLine)
	switch {
	case c == Day:
		return line
	case c < Month:
		return 7*line - 3 + int64(c-Week) // 1970-01-01 was a Thursday
	case c == Year:
		return dayOf(1970+int(line), time.January, 1)
	}
	month, anchor := time.January+time.Month(line), int64(c-Month)
	return min(dayOf(1970, month, 1)+anchor, dayOf(1970, month+1, 0))
}

// maxLine bounds lines, so that each can be a date. No moment in microseconds is as late.
const maxLine = 1e9

// lineOf returns the line that a day belongs to.
func (c Cycle) lineOf(day int64) (line int64) {
	y, m, _ := time.Unix(day*secondsOfDay, 0).UTC().Date()
	switch {
	case c == Day:
		return day
	case c < Month:
		return floor(day+3-int64(c-Week), 7)
	case c == Year:
		return int64(y) - 1970
	}
	if line = 12*(int64(y)-1970) + int64(m-time.January); c.firstDay(line) > day {
		line--
	}
	return line
}

const secondsOfDay = int64(day / time.Second)

func dayOf(year int, month time.Month, day int) int64 {
	return floor(time.Date(year, month, day, 0, 0, 0, 0, time.UTC).Unix(), secondsOfDay)
}

// floor returns a / b, rounded down.
func floor(a, b int64) int64 {
	if q := a / b; q*b <= a {
		return q
	}
	return a/b - 1
}

// begin returns the first moment of a day in a time zone, in seconds since 1970. If clocks skip midnight, or the whole day, that is
// when they go on. If they go back over midnight, it is when the day begins for the first time.
func begin(day int64, in *time.Location) int64 {
	midnight := day * secondsOfDay
	t := time.Unix(midnight-2*secondsOfDay, 0).In(in) // a day before, whatever the zone
	for {
		_, offset := t.Zone()
		_, end := t.ZoneBounds()
		if !end.IsZero() && !end.After(t) { // so it is on the last day of leap years after 2037
			end = t.Add(time.Hour)
		}
		if at := max(midnight-int64(offset), t.Unix()); end.IsZero() || at < end.Unix() {
			return at
		}
		t = end
	}
}

var errLocal = errors.New("it is another one on each machine")

// zones has the locations of time zones by their names.
var zones sync.Map

// location returns the time zone of that name; "" is UTC. With an error, it returns UTC, too.
func location(name string) (*time.Location, error) {
	if l, ok := zones.Load(name); ok {
		return l.(*time.Location), nil
	}
	if name == "Local" {
		return time.UTC, errLocal
	}
	l, err := time.LoadLocation(name)
	if err != nil {
		return time.UTC, err
	}
	zones.Store(name, l)
	return l, nil
}
