package limiter

import (
	"testing"
	"testing/synctest"
	"time"
	_ "time/tzdata"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/rate"
)

// A bubble begins at midnight, UTC, on 2000-01-01: a Saturday.
func calendarAt(t *testing.T, at string, o CalendarOptions) *Calendar {
	t.Helper()
	begin, err := time.Parse(time.RFC3339, at)
	require.NoError(t, err)
	time.Sleep(time.Until(begin))
	l, err := NewCalendar(o)
	require.NoError(t, err)
	return l
}

func granted(t *testing.T, l Limiter, n int) bool {
	t.Helper()
	lease, err := l.TryAcquire(t.Context(), n)
	require.NoError(t, err)
	return lease.Acquired()
}

// A retry at the moment that a rejection names succeeds, and one a nanosecond earlier does not, over twenty years of months.
func TestCalendar_RetryAfterIsExact(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := calendarAt(t, "2006-01-31T12:00:00Z", CalendarOptions{PermitLimit: 3, Every: rate.MonthFrom(31), Zone: "America/St_Johns"})
		in, err := time.LoadLocation("America/St_Johns")
		require.NoError(t, err)
		for month := range 240 {
			require.True(t, granted(t, l, 3))
			lease, err := l.TryAcquire(t.Context(), 1)
			require.NoError(t, err)
			d, ok := lease.RetryAfter()
			require.True(t, ok)
			time.Sleep(d - 1)
			require.False(t, granted(t, l, 1))
			time.Sleep(time.Nanosecond)
			y, m, day := time.Now().In(in).Date()
			require.Equal(t, time.Month((month+1)%12)+time.January, m)
			require.Equal(t, time.Date(y, m+1, 0, 0, 0, 0, 0, in).Day(), min(day, 31))
		}
	})
}

// Waiters are served where their windows begin, and a rejection behind them says when they all have been.
func TestCalendar_QueueOverSeveralWindows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := calendarAt(t, "2026-10-23T12:00:00Z", CalendarOptions{PermitLimit: 2, Every: rate.Day, Zone: "Europe/Berlin", QueueLimit: 5})
		require.True(t, granted(t, l, 2))
		served := make(chan string, 5)
		for _, n := range []int{2, 1, 2} {
			go func() {
				lease, err := l.Acquire(t.Context(), n)
				assert.NoError(t, err)
				assert.True(t, lease.Acquired())
				served <- time.Now().UTC().Format(time.RFC3339)
			}()
			synctest.Wait()
		}
		lease, err := l.TryAcquire(t.Context(), 2)
		require.NoError(t, err)
		d, _ := lease.RetryAfter()
		assert.Equal(t, "2026-10-26T23:00:00Z", time.Now().Add(d).UTC().Format(time.RFC3339))
		for _, want := range []string{"2026-10-23T22:00:00Z", "2026-10-24T22:00:00Z", "2026-10-25T23:00:00Z"} { // a day of 25 hours
			assert.Equal(t, want, <-served)
		}
	})
}

func TestCalendar_Reconfigure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := CalendarOptions{PermitLimit: 1000, Every: rate.Month, Zone: "Europe/Berlin"}
		l := calendarAt(t, "2026-11-15T10:00:00Z", o)
		lease, err := l.TryAcquire(t.Context(), 900)
		require.NoError(t, err)
		o.PermitLimit = 2000
		require.NoError(t, l.Reconfigure(o))
		assert.Equal(t, o.Limits(), l.Limits())
		assert.Equal(t, int64(1100), l.Statistics().AvailablePermits)
		lease, ok := lease.Adjust(800)
		require.True(t, ok)
		assert.Equal(t, int64(1200), l.Statistics().AvailablePermits)
		o.Every = rate.Day
		require.NoError(t, l.Reconfigure(o))
		lease.Refund()
		assert.Equal(t, int64(1200), l.Statistics().AvailablePermits, "it is of another calendar")
		time.Sleep(13*time.Hour - 1)
		assert.Equal(t, int64(1200), l.Statistics().AvailablePermits)
		time.Sleep(time.Nanosecond)
		assert.Equal(t, int64(2000), l.Statistics().AvailablePermits)
		require.Error(t, l.Reconfigure(FixedWindowOptions{PermitLimit: 1, Window: 1}))
		require.Error(t, l.Reconfigure(CalendarOptions{PermitLimit: 1, Every: rate.Day, Zone: "Nowhere"}))
	})
}

// The wall clock is set: here, by moving the time at which the limiter has seen 1970.
func TestCalendar_FollowsTheWallClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := calendarAt(t, "2026-06-15T23:00:00Z", CalendarOptions{PermitLimit: 5, Every: rate.Day, QueueLimit: 5})
		step := func(d time.Duration) { // the limiter has seen a clock that was d behind
			l.mu.Lock()
			defer l.mu.Unlock()
			l.schedule.Anchor += int64(d)
			l.findLine()
		}
		require.True(t, granted(t, l, 5))
		lease, err := l.TryAcquire(t.Context(), 1)
		require.NoError(t, err)
		d, _ := lease.RetryAfter()
		assert.Equal(t, time.Hour, d)
		step(2 * time.Hour)
		waited := make(chan Lease, 1)
		go func() {
			lease, _ := l.Acquire(t.Context(), 1)
			waited <- lease
		}()
		synctest.Wait()
		assert.Empty(t, waited, "the clock is right again")
		time.Sleep(time.Hour)
		synctest.Wait()
		assert.True(t, (<-waited).Acquired())

		l.mu.Lock() // it has been tomorrow
		l.state.Line++
		l.state.Segments[0].Line++
		l.state.Segments[0].Serial++
		l.findLine()
		l.mu.Unlock()
		assert.Equal(t, int64(4), l.Statistics().AvailablePermits, "what was taken tomorrow is of tomorrow")
		time.Sleep(24 * time.Hour)
		assert.Equal(t, int64(4), l.Statistics().AvailablePermits, "and stays taken tomorrow")
		time.Sleep(24 * time.Hour)
		assert.Equal(t, int64(5), l.Statistics().AvailablePermits)
	})
}

// A limiter that was made by a clock far ahead, as a package variable is when a test uses it in a bubble.
func TestCalendar_ClockFarAhead(t *testing.T) {
	l, err := NewCalendar(CalendarOptions{PermitLimit: 5, Every: rate.Day})
	require.NoError(t, err)
	require.True(t, granted(t, l, 5))
	synctest.Test(t, func(t *testing.T) {
		require.False(t, granted(t, l, 1))
		time.Sleep(24 * time.Hour)
		require.True(t, granted(t, l, 5))
	})
}
