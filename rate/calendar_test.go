package rate_test

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
	_ "time/tzdata"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/rate"
)

// zones have everything that clocks do: half hours, no midnight, no day, two midnights, another base offset, winter time in summer.
var zones = []string{
	"", "Europe/Berlin", "Europe/London", "Europe/Dublin", "Europe/Istanbul", "Africa/Casablanca", "Africa/Cairo", "Asia/Beirut",
	"Asia/Gaza", "Asia/Tehran", "Asia/Kathmandu", "Asia/Kolkata", "Asia/Pyongyang", "Asia/Manila", "Australia/Lord_Howe", "Australia/Adelaide",
	"Pacific/Apia", "Pacific/Chatham", "Pacific/Kwajalein", "Pacific/Kiritimati", "America/Sao_Paulo", "America/St_Johns", "America/New_York",
	"America/Caracas", "America/Havana", "America/Asuncion", "Antarctica/Troll", "America/Santiago",
}

var cycles = []rate.Cycle{
	rate.Day, rate.Week, rate.WeekFrom(time.Sunday), rate.WeekFrom(time.Thursday), rate.Month, rate.MonthFrom(15), rate.MonthFrom(29),
	rate.MonthFrom(30), rate.MonthFrom(31), rate.Year,
}

func scheduleOf(every rate.Cycle, zone string) rate.Schedule {
	return rate.Limits{Kind: rate.Calendar, Permits: 8, Every: every, Zone: zone}.Schedule(time.Microsecond)
}

// dayBegins returns when each date begins in a zone, by looking at the clock every quarter of an hour, and every second where the
// date changes. A date that does not exist is missing.
func dayBegins(zone string, from, to time.Time) map[int]time.Time {
	in, _ := time.LoadLocation(zone)
	begins, latest := map[int]time.Time{}, number(from.In(in))
	for t := from; t.Before(to); t = t.Add(15 * time.Minute) {
		if number(t.In(in)) <= latest {
			continue
		}
		at := t.Add(-15 * time.Minute)
		for number(at.In(in)) <= latest {
			at = at.Add(time.Second)
		}
		latest = number(at.In(in))
		begins[latest] = at
	}
	return begins
}

// number returns a date as a number, such as 20260131.
func number(t time.Time) int {
	y, m, d := t.Date()
	return 10000*y + 100*int(m) + d
}

// isFirst reports whether a cycle begins with a date.
func isFirst(c rate.Cycle, date time.Time) bool {
	switch lastOfMonth := date.AddDate(0, 0, 1).Day() == 1; {
	case c == rate.Day:
		return true
	case c < rate.Month:
		return c == rate.WeekFrom(date.Weekday())
	case c == rate.Year:
		return date.YearDay() == 1
	default:
		return c == rate.MonthFrom(date.Day()) || lastOfMonth && c > rate.MonthFrom(date.Day())
	}
}

// The lines are where a walk through all days finds them.
func TestCalendar_Lines(t *testing.T) {
	years := 20
	if testing.Short() {
		years = 3
	}
	from := time.Date(2011, 1, 1, 0, 0, 0, 0, time.UTC).AddDate(0, 0, -2)
	for i, zone := range zones {
		t.Run(zone, func(t *testing.T) {
			t.Parallel()
			from := from.AddDate(5*(i%5), 0, 0) // up to 2051: after 2037, zones have rules in place of tables
			begins := dayBegins(zone, from, from.AddDate(years, 0, 4))
			for _, c := range cycles {
				g := scheduleOf(c, zone)
				var lines []int64
				for date := from.AddDate(0, 0, 2); date.Before(from.AddDate(years, 0, 0)); date = date.AddDate(0, 0, 1) {
					if !isFirst(c, date) {
						continue
					}
					at, exists := begins[number(date)]
					for skipped := date; !exists; {
						skipped = skipped.AddDate(0, 0, 1)
						at, exists = begins[number(skipped)]
					}
					if n := len(lines); n == 0 || lines[n-1] != at.UnixMicro() {
						lines = append(lines, at.UnixMicro())
					}
				}
				for i, at := range lines[:len(lines)-1] {
					line, next := g.LineAt(at), lines[i+1]
					w := g.Window(line)
					got := [...]int64{g.TimeOf(line), g.TimeOf(line + 1), g.LineAt((at + next) / 2), w.LineAt(at), w.LineAt(next - 1), w.TimeOf(line), w.TimeOf(line + 1)}
					if want := [...]int64{at, next, line, line, line, at, next}; got != want || g.LineAt(at-1) >= line {
						require.Equal(t, want, got, "%v: %v", c, time.UnixMicro(at).UTC())
					}
					if max(w.Anchor, -w.Anchor) > 1<<53 {
						require.Fail(t, "scripts compute with doubles")
					}
				}
			}
		})
	}
}

func TestCalendar_HardDates(t *testing.T) {
	for _, tt := range []struct {
		every            rate.Cycle
		zone, at         string
		begins, next, is string
	}{
		{rate.MonthFrom(31), "", "2026-02-10T00:00:00Z", "2026-01-31T00:00:00Z", "2026-02-28T00:00:00Z", "the last day of a shorter month"},
		{rate.MonthFrom(31), "", "2026-02-28T00:00:00Z", "2026-02-28T00:00:00Z", "2026-03-31T00:00:00Z", "back to the 31st"},
		{rate.MonthFrom(31), "", "2026-03-30T23:59:59Z", "2026-02-28T00:00:00Z", "2026-03-31T00:00:00Z", "a month of 31 days"},
		{rate.MonthFrom(30), "", "2028-02-29T12:00:00Z", "2028-02-29T00:00:00Z", "2028-03-30T00:00:00Z", "a leap year"},
		{rate.MonthFrom(29), "", "2100-03-01T00:00:00Z", "2100-02-28T00:00:00Z", "2100-03-29T00:00:00Z", "not a leap year"},
		{rate.Year, "", "2028-12-31T23:59:59Z", "2028-01-01T00:00:00Z", "2029-01-01T00:00:00Z", "a leap year"},
		{rate.Week, "", "2026-01-01T00:00:00Z", "2025-12-29T00:00:00Z", "2026-01-05T00:00:00Z", "a week of two years"},
		{rate.WeekFrom(time.Sunday), "", "2025-12-28T00:00:00Z", "2025-12-28T00:00:00Z", "2026-01-04T00:00:00Z", "from Sunday"},
		{rate.Day, "Europe/Berlin", "2026-03-29T12:00:00Z", "2026-03-28T23:00:00Z", "2026-03-29T22:00:00Z", "23 hours"},
		{rate.Day, "Europe/Berlin", "2026-10-25T12:00:00Z", "2026-10-24T22:00:00Z", "2026-10-25T23:00:00Z", "25 hours"},
		{rate.Day, "Australia/Lord_Howe", "2026-04-05T00:00:00Z", "2026-04-04T13:00:00Z", "2026-04-05T13:30:00Z", "24 hours and a half"},
		{rate.Day, "Asia/Kathmandu", "2026-01-01T00:00:00Z", "2025-12-31T18:15:00Z", "2026-01-01T18:15:00Z", "quarters of an hour"},
		{rate.Day, "Pacific/Chatham", "2026-09-26T20:00:00Z", "2026-09-26T11:15:00Z", "2026-09-27T10:15:00Z", "23 hours from a quarter"},
		{rate.Day, "Pacific/Apia", "2011-12-30T09:59:59Z", "2011-12-29T10:00:00Z", "2011-12-30T10:00:00Z", "the day before the one that was skipped"},
		{rate.Day, "Pacific/Apia", "2011-12-30T10:00:00Z", "2011-12-30T10:00:00Z", "2011-12-31T10:00:00Z", "the day after it"},
		{rate.MonthFrom(30), "Pacific/Apia", "2011-12-30T10:00:00Z", "2011-12-30T10:00:00Z", "2012-01-29T10:00:00Z", "begins with a day that was skipped"},
		{rate.Day, "America/Sao_Paulo", "2018-11-04T12:00:00Z", "2018-11-04T03:00:00Z", "2018-11-05T02:00:00Z", "no midnight: it begins at 01:00"},
		{rate.Day, "America/Sao_Paulo", "2018-02-18T02:30:00Z", "2018-02-17T02:00:00Z", "2018-02-18T03:00:00Z", "back from midnight to 23:00"},
		{rate.Day, "Asia/Beirut", "2026-03-28T23:00:00Z", "2026-03-28T22:00:00Z", "2026-03-29T21:00:00Z", "no midnight"},
		{rate.Month, "Asia/Beirut", "2026-03-28T23:00:00Z", "2026-02-28T22:00:00Z", "2026-03-31T21:00:00Z", "an hour less"},
		{rate.Day, "America/St_Johns", "2010-11-07T03:00:00Z", "2010-11-07T02:30:00Z", "2010-11-08T03:30:00Z", "back from 00:01 to 23:01 of the day before"},
		{rate.Day, "America/Havana", "2026-11-01T06:00:00Z", "2026-11-01T04:00:00Z", "2026-11-02T05:00:00Z", "two midnights: it begins with the first"},
		{rate.Day, "America/St_Johns", "2040-12-31T12:00:00Z", "2040-12-31T03:30:00Z", "2041-01-01T03:30:00Z", "the last day of a leap year after the table of the zone"},
		{rate.Year, "Australia/Lord_Howe", "2040-12-31T12:59:59Z", "2039-12-31T13:00:00Z", "2040-12-31T13:00:00Z", "the same in summer"},
		{rate.Month, "Africa/Casablanca", "2026-03-01T00:00:00Z", "2026-03-01T00:00:00Z", "2026-03-31T23:00:00Z", "winter time during Ramadan"},
	} {
		t.Run(fmt.Sprint(tt.every, tt.zone, tt.is), func(t *testing.T) {
			g := scheduleOf(tt.every, tt.zone)
			at, err := time.Parse(time.RFC3339, tt.at)
			require.NoError(t, err)
			line := g.LineAt(at.UnixMicro())
			utc := func(line int64) string { return time.UnixMicro(g.TimeOf(line)).UTC().Format(time.RFC3339) }
			assert.Equal(t, tt.begins, utc(line))
			assert.Equal(t, tt.next, utc(line+1))
		})
	}
}

// In twenty years, no more is granted between two lines than the largest limit of that time, whatever is refunded and changed.
func TestCalendar_GrantsNoMoreThanTheLimit(t *testing.T) {
	for seed := range seeds(100) {
		r := rand.New(rand.NewPCG(seed, 3))
		g := scheduleOf(cycles[r.IntN(len(cycles))], zones[r.IntN(len(zones))])
		now := time.Date(2010, 1, 1, 0, 0, 0, r.IntN(1e9), time.UTC).UnixMicro()
		end := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC).UnixMicro()
		s := g.Full(now)
		type grant struct {
			at, n   int64
			receipt rate.Receipt
		}
		var grants []grant
		most := map[int64]int64{} // by line: the largest limit
		for now < end {
			if now += r.Int64N(g.Period/4 + 1); r.IntN(3) == 0 {
				now = g.TimeOf(g.LineAt(now)+1) - r.Int64N(2) // a line, or right before one
			}
			g.Advance(&s, now)
			switch n := 1 + r.Int64N(6); r.IntN(6) {
			case 0:
				to := g
				to.Permits = 1 + r.Int64N(12)
				if r.IntN(2) == 0 {
					s = to.Convert(&g, s, now, false)
					for i := range grants {
						grants[i].receipt.Line = -1 << 40 // it cannot be refunded any more
					}
				}
				g = to
			case 1:
				if len(grants) > 0 {
					i := len(grants) - 1 - r.IntN(min(len(grants), 5))
					grants[i].n -= g.Refund(&s, grants[i].receipt, grants[i].n)
				}
			default:
				wait := g.Wait(&s, now, n)
				taken, ok := g.Take(&s, n, n)
				if ok != (wait == 0) {
					require.Fail(t, "Wait says something else")
				}
				if ok {
					grants = append(grants, grant{now, taken, g.Receipt(&s)})
				} else if now+wait != g.TimeOf(g.LineAt(now)+1) {
					require.Fail(t, "everything comes back on the next line")
				}
			}
			line := g.LineAt(now)
			most[line] = max(most[line], g.Permits)
		}
		sum := map[int64]int64{}
		for _, x := range grants {
			sum[g.LineAt(x.at)] += x.n
		}
		for line, n := range sum {
			require.LessOrEqual(t, n, most[line], "seed %d: %+v", seed, g)
		}
	}
}

// Two programs whose time zone databases disagree by an hour begin one window, not two.
func TestCalendar_DatabasesThatDisagree(t *testing.T) {
	early, late := scheduleOf(rate.Day, "Asia/Kolkata"), scheduleOf(rate.Day, "Asia/Karachi") // half an hour apart
	now := late.TimeOf(20000)
	require.Equal(t, int64(20000), early.LineAt(now-1))
	s := early.Full(now - 1)
	granted := int64(0)
	for range 10 {
		for _, g := range []rate.Schedule{early, late} {
			g.Advance(&s, now-1)
			n, _ := g.Take(&s, 1, 5)
			granted += n
		}
	}
	assert.Equal(t, int64(8), granted)
	late.Advance(&s, now)
	assert.Equal(t, int64(8), s.Missing, "the window has begun before")
	late.Advance(&s, late.TimeOf(20001))
	assert.Zero(t, s.Missing)
	assert.Equal(t, int64(20001), s.Line)
}

func TestCalendar_Extremes(t *testing.T) {
	for _, c := range cycles {
		for _, unit := range []time.Duration{1, time.Microsecond} {
			g := rate.Limits{Kind: rate.Calendar, Permits: 1, Every: c, Zone: "America/St_Johns"}.Schedule(unit)
			for _, at := range []int64{math.MinInt64, -1 << 62, -1, 0, 1 << 62, math.MaxInt64} {
				line := g.LineAt(at)
				assert.LessOrEqual(t, g.TimeOf(line), at)
				assert.GreaterOrEqual(t, g.TimeOf(line+1), at)
			}
			assert.Equal(t, int64(math.MaxInt64), g.TimeOf(math.MaxInt64))
			g.Period = 1 // of a broken definition
			assert.NotPanics(t, func() { g.LineAt(1 << 40) })
		}
	}
}

func TestCalendar_Convert(t *testing.T) {
	day, month := scheduleOf(rate.Day, "Europe/Berlin"), scheduleOf(rate.Month, "Europe/Berlin")
	now := time.Date(2026, 11, 15, 10, 0, 0, 0, time.UTC).UnixMicro()
	s := day.Full(now)
	_, _ = day.Take(&s, 5, 5)
	next := month.Convert(&day, s, now, false)
	assert.Equal(t, int64(5), next.Missing)
	assert.Equal(t, "2026-11-30T23:00:00Z", time.UnixMicro(month.FullAt(&next)).UTC().Format(time.RFC3339), "what was taken today stays taken this month")
	back := day.Convert(&month, next, now, false)
	assert.Equal(t, "2026-11-15T23:00:00Z", time.UnixMicro(day.FullAt(&back)).UTC().Format(time.RFC3339))
	for _, from := range schedules {
		from.Period *= 1e6
		s := from.Full(now)
		_, _ = from.Take(&s, 5, 5)
		to := day
		assert.False(t, to.Follow(&from, from.TimeOf(s.Line), now))
		assert.Equal(t, day, to, "the lines of a calendar are where they are")
		next := to.Convert(&from, s, now, false)
		assert.Equal(t, int64(5), next.Missing)
	}
}

func TestCycle(t *testing.T) {
	texts := map[string]bool{}
	for c := rate.Day; c <= rate.Year; c++ {
		text, err := c.MarshalText()
		require.NoError(t, err)
		var back rate.Cycle
		require.NoError(t, back.UnmarshalText(text))
		assert.Equal(t, c, back)
		texts[string(text)] = true
	}
	assert.Len(t, texts, 1+7+31+1)
	var c rate.Cycle
	assert.EqualError(t, c.UnmarshalText([]byte("fortnight")), `must be day, week, month or year, or one such as week from sunday or month from 15, found "fortnight"`)
	assert.Error(t, c.UnmarshalText(nil))
	_, err := c.MarshalText()
	assert.Error(t, err)
	assert.Equal(t, "week", rate.WeekFrom(time.Monday).String())
	assert.Equal(t, "week from sunday", rate.WeekFrom(time.Sunday).String())
	assert.Equal(t, "month", rate.MonthFrom(1).String())
	assert.Equal(t, "month from 31", rate.MonthFrom(31).String())
	for _, day := range []int{-1, 0, 32, 300} {
		assert.Error(t, rate.Limits{Kind: rate.Calendar, Permits: 1, Every: rate.MonthFrom(day)}.Validate())
	}
}

func TestSchedule_IsOfLimits(t *testing.T) {
	for k := rate.TokenBucket; k <= rate.Calendar; k++ {
		l := rate.Example(k)
		for _, unit := range []time.Duration{1, time.Microsecond} {
			g := l.Schedule(unit)
			assert.Equal(t, l, g.Limits(unit))
			assert.Equal(t, k != rate.Concurrency, g.Usable())
		}
	}
	g := scheduleOf(rate.Month, "Europe/Berlin")
	text, err := json.Marshal(g)
	require.NoError(t, err)
	var back rate.Schedule
	require.NoError(t, json.Unmarshal(text, &back))
	assert.Equal(t, g, back)
	g.Zone = "Europe/Nowhere"
	assert.False(t, g.Usable())
	assert.True(t, slices.Contains(zones, "Europe/Berlin"))
}

func TestCycle_LongNames(t *testing.T) {
	for text, want := range map[string]rate.Cycle{"week from monday": rate.Week, "month from 1": rate.Month} {
		var c rate.Cycle
		require.NoError(t, c.UnmarshalText([]byte(text)))
		assert.Equal(t, want, c)
	}
}
