package budget_test

import (
	"math"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/strategies/budget"
)

const off = -1

func counted(t *testing.T, b budget.Budget, n int) {
	t.Helper()
	for range n {
		b.Count(t.Context())
	}
}

// left takes all that is left.
func left(t *testing.T, b budget.Budget) (n int) {
	t.Helper()
	for b.TryAcquire(t.Context()) {
		n++
	}
	return n
}

func TestRatio_TryAcquire(t *testing.T) {
	b := weir.Must(budget.New(&budget.Options{Ratio: 0.1, MinPerSecond: off}))
	assert.Zero(t, left(t, b), "nothing was executed")
	counted(t, b, 9)
	assert.Zero(t, left(t, b))
	counted(t, b, 1)
	assert.Equal(t, 1, left(t, b))
	counted(t, b, 1000)
	assert.Equal(t, 100, left(t, b))

	b = weir.Must(budget.New(&budget.Options{Ratio: 2.5, MinPerSecond: off}))
	counted(t, b, 2)
	assert.Equal(t, 5, left(t, b), "more than one each")
}

func TestOptions_Defaults(t *testing.T) {
	b := weir.Must(budget.New(nil))
	assert.Equal(t, 10*10, left(t, b), "ten for each second of the window, at once")
	counted(t, b, 1000)
	assert.Equal(t, 200, left(t, b))
	assert.Equal(t, budget.Options{Ratio: 0.2, MinPerSecond: 10, Window: 10 * time.Second}, b.Options())
	assert.Equal(t, budget.Statistics{Executions: 1000, Taken: 300, Refused: 2}, b.Statistics())
}

func TestRatio_NothingAllowed(t *testing.T) {
	b := weir.Must(budget.New(&budget.Options{Ratio: off, MinPerSecond: off}))
	counted(t, b, 1000)
	assert.Zero(t, left(t, b))
	assert.Equal(t, budget.Options{Ratio: off, MinPerSecond: off, Window: 10 * time.Second}, b.Options())
}

func TestRatio_Window(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, window := range []time.Duration{time.Second, 10 * time.Second, 1300 * time.Millisecond, budget.LongestWindow} {
			b := weir.Must(budget.New(&budget.Options{Ratio: 0.5, MinPerSecond: 1, Window: window}))
			least := int(window / time.Second)
			counted(t, b, 100)
			assert.Equal(t, 50+least, left(t, b))
			time.Sleep(window - 250*time.Millisecond)
			assert.Zero(t, left(t, b), "%v: still within the window", window)
			counted(t, b, 2)
			assert.Equal(t, 1, left(t, b), "%v", window)
			time.Sleep(500 * time.Millisecond)
			assert.Equal(t, least, left(t, b), "%v: of the first hundred nothing is left", window)
			time.Sleep(1000 * time.Hour)
			assert.Equal(t, budget.Statistics{Available: int64(least), Refused: 4}, b.Statistics(), "%v", window)
		}
	})
}

func TestRatio_Reconfigure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := weir.Must(budget.New(&budget.Options{Ratio: 0.5, MinPerSecond: off}))
		counted(t, b, 100)
		assert.Equal(t, 50, left(t, b))
		require.NoError(t, b.Reconfigure(&budget.Options{Ratio: 0.7, MinPerSecond: off, Window: time.Minute}))
		assert.Equal(t, 20, left(t, b), "no fresh budget")
		time.Sleep(59 * time.Second)
		assert.Zero(t, left(t, b))
		require.NoError(t, b.Reconfigure(&budget.Options{Ratio: 0.1, MinPerSecond: off}))
		assert.Zero(t, left(t, b))
		assert.Error(t, b.Reconfigure(&budget.Options{Ratio: -3}))
		assert.Equal(t, budget.Options{Ratio: 0.1, MinPerSecond: off, Window: 10 * time.Second}, b.Options(), "as it was")
	})
}

func TestOptions_Validate(t *testing.T) {
	_, err := budget.New(&budget.Options{Ratio: math.NaN(), MinPerSecond: -2, Window: 61 * time.Second})
	assert.EqualError(t, err, "budget: Ratio must be at least 0, or -1 for none, got NaN; "+
		"MinPerSecond must be at least 0, or -1 for none, got -2; Window must be from 1s to 1m0s, got 1m1s")
	for _, o := range []budget.Options{{Ratio: -0.5}, {Ratio: math.Inf(1)}, {Window: time.Second - 1}, {Window: -1}} {
		assert.Error(t, o.Validate(), "%+v", o)
	}
	assert.Panics(t, func() { weir.Must(budget.New(&budget.Options{Window: 1})) })
}

func TestRatio_ExtremeOptions(t *testing.T) {
	b := weir.Must(budget.New(&budget.Options{Ratio: math.MaxFloat64, MinPerSecond: math.MaxInt}))
	counted(t, b, 100)
	assert.True(t, b.TryAcquire(t.Context()))
	assert.Equal(t, int64(math.MaxInt64), b.Statistics().Available)
}

func TestRatio_Concurrent(t *testing.T) {
	b := weir.Must(budget.New(&budget.Options{Ratio: 0.25, MinPerSecond: off, Window: budget.LongestWindow}))
	var wg sync.WaitGroup
	var granted atomic.Int64
	for range 8 {
		wg.Go(func() {
			for range 1000 {
				b.Count(t.Context())
				if b.TryAcquire(t.Context()) {
					granted.Add(1)
				}
			}
		})
	}
	wg.Wait()
	assert.EqualValues(t, 2000, granted.Load()+int64(left(t, b)))
	assert.EqualValues(t, 8000, b.Statistics().Executions)
}

func TestAllocations(t *testing.T) {
	b, ctx := weir.Must(budget.New(nil)), t.Context()
	if got := testing.AllocsPerRun(200, func() { b.Count(ctx); b.TryAcquire(ctx) }); got != 0 {
		t.Errorf("%v allocations, want 0", got)
	}
}

func TestRatio_WholePercents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for p := 1; p <= 100; p++ {
			b := weir.Must(budget.New(&budget.Options{Ratio: float64(p) / 100, MinPerSecond: -1}))
			for range 100 {
				b.Count(t.Context())
			}
			n := 0
			for b.TryAcquire(t.Context()) {
				n++
			}
			assert.Equal(t, p, n)
		}
	})
}
