package lending

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/rate"
	"github.com/weir-go/weir/store/backend"
)

// The tests of package store compare what several instances grant with the limit.

var begun = time.UnixMicro(1_000_000)

func borrow(l *Blocks, limits rate.Schedule, missing, n int64) {
	d := backend.NewDefinition("it", limits, begun.UnixMicro())
	l.Add(d, rate.Receipt{Line: d.LineAt(begun.UnixMicro())}, n, missing+n, begun.UnixMicro(), begun)
}

func TestBlocks_NextSize(t *testing.T) {
	var l Blocks
	now := begun
	for _, want := range []int64{0, 0, 4, 8, 10, 10} {
		require.Equal(t, want, l.NextSize(10, now))
		now = now.Add(Lifetime / 20)
	}
	require.EqualValues(t, 10, l.NextSize(10, now.Add(Lifetime/2)), "used up in time")
	require.EqualValues(t, 5, l.NextSize(10, now.Add(2*Lifetime)))
	now = now.Add(4 * Lifetime)
	require.Zero(t, l.NextSize(10, now), "asked for too seldom")
	for _, since := range []time.Duration{Lifetime / 2, Lifetime / 20, Lifetime / 2, Lifetime / 20} {
		now = now.Add(since)
		require.Zero(t, l.NextSize(10, now), "not twice in a row within a tenth")
	}
	now = now.Add(Lifetime / 20)
	require.EqualValues(t, 4, l.NextSize(10, now))
	require.EqualValues(t, 8, l.NextSize(10, now.Add(Lifetime/3)), "twice as much is used up in time, too")
}

// Each line of a bucket restores the lowest positions, and a borrowed permit can be granted until then.
func TestBlocks_LinesRestore(t *testing.T) {
	var l Blocks
	borrow(&l, rate.Schedule{Kind: rate.TokenBucket, Permits: 100, Refill: 10, Period: 100_000}, 20, 30)
	line := func(n int) time.Time { return begun.Add(time.Duration(n)*100*time.Millisecond + time.Millisecond) }
	for i, want := range []int64{30, 30, 30, 20, 10, 0} {
		require.Equal(t, want, l.Left(line(i)), "%d lines", i)
	}
	require.Empty(t, l.Drop(line(6)))
	require.True(t, l.Empty())
}

func TestBlocks_PutBack(t *testing.T) {
	var l Blocks
	borrow(&l, rate.Schedule{Kind: rate.TokenBucket, Permits: 100, Refill: 10, Period: 1_000_000}, 0, 10)
	borrow(&l, rate.Schedule{Kind: rate.TokenBucket, Permits: 100, Refill: 10, Period: 1_000_000}, 10, 10)
	now := begun.Add(time.Millisecond)
	_, ok := l.Take(21, now)
	require.False(t, ok)
	first, ok := l.Take(8, now)
	require.True(t, ok)
	second, ok := l.Take(12, now)
	require.True(t, ok)
	require.NotEqual(t, first, second)
	_, ok = l.Take(0, now)
	require.False(t, ok)
	require.EqualValues(t, 8, l.PutBack(8, first, now))
	require.Zero(t, l.PutBack(1, NoBlock, now))
	require.Zero(t, l.PutBack(1, second, begun.Add(2*time.Second)), "a line has passed")
	require.EqualValues(t, 10, l.PutBack(12, second, now), "2 of them were of the other block")
	back := l.Drop(now)
	require.Equal(t, []int64{10, 8}, []int64{back[0].Permits, back[1].Permits}, "the newest first")
}

// What is left of a segment of a sliding window would count as taken until the window has passed.
func TestBlocks_TrimOfASlidingWindow(t *testing.T) {
	var l Blocks
	borrow(&l, rate.Schedule{Kind: rate.SlidingWindow, Permits: 100, Period: 100_000, Segments: 10}, 0, 10)
	_, ok := l.Take(3, begun)
	require.True(t, ok)
	require.Empty(t, l.Trim(begun))
	back := l.Trim(begun.Add(200 * time.Millisecond))
	require.Len(t, back, 1)
	require.EqualValues(t, 7, back[0].Permits)
	require.True(t, l.Empty())
}
