package render

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestFormats(t *testing.T) {
	for got, want := range map[string]string{
		Count(0): "0", Count(-123): "-123", Count(1234): "1,234", Count(-1234567): "-1,234,567", Count(math.MaxInt64): "9.223e+18",
		Number(0.12345): "0.123", Number(1234.5): "1,235", Number(12_345): "12.3k", Number(4.5e6): "4.5M",
		Share(1, 0): "–", Share(1, 5000): "<0.1%", Share(4999, 5000): ">99.9%", Share(1, 3): "33.3%",
		Points(-0.01): "0.0", Points(0.01): "0.0", Points(1.25): "+1.2", Points(-2): "-2.0",
		Change(5, Count): "+5", Change(-time.Second, Duration): "-1s",
		Duration(0): "0", Duration(999): "999ns", Duration(123_456): "123µs", Duration(1_255_000_000): "1.26s", Duration(95*time.Second + 1): "1m35s",
		Duration(100*time.Second + time.Millisecond): "1m40s", Duration(90*time.Minute + time.Second): "1h30m",
		Moment(1_500_000_001): "1.5s", Moment(166_666_665): "166.667ms", Moment(999): "999ns",
	} {
		assert.Equal(t, want, got)
	}
	assert.NotPanics(t, func() { Duration(math.MinInt64) })
}

// A character can take two cells of a terminal, or none.
func TestReport_WriteText(t *testing.T) {
	name := strings.Repeat("漢", 200)
	r := Report{Title: name, Tables: []Table{{
		Caption: "Names", Note: strings.Repeat("long ", 50), List: []string{strings.Repeat("é\u0301", 300)},
		Head: []Column{{Name: "n"}, {Name: name, Key: true}, {Name: "name", Key: true, Text: true}},
		Rows: [][]string{{"1", "2", name}, {"10"}},
	}, {Caption: "Nothing", Empty: "none"}}}
	var b strings.Builder
	require.NoError(t, r.WriteText(&b))
	for line := range strings.Lines(b.String()) {
		assert.LessOrEqual(t, Cells(strings.TrimSpace(line)), textColumns, line)
	}
	assert.Contains(t, b.String(), "\n  10\n")
	assert.True(t, strings.HasSuffix(b.String(), "\nNothing\n  none\n"), b.String())
}

func TestUnit_Ticks(t *testing.T) {
	s := float64(time.Second)
	for _, test := range []struct {
		unit  Unit
		limit float64
		want  []float64
	}{
		{PerSecond, 0, []float64{0}},
		{PerSecond, 0.5, []float64{0, 0.1, 0.2, 0.3, 0.4, 0.5}},
		{Whole, 2.4, []float64{0, 1, 2}},
		{Whole, 530, []float64{0, 200, 400}},
		{Nanoseconds, 75 * s, []float64{0, 15 * s, 30 * s, 45 * s, 60 * s, 75 * s}},
		{Nanoseconds, 7200 * s, []float64{0, 1800 * s, 3600 * s, 5400 * s, 7200 * s}},
	} {
		assert.InDeltaSlice(t, test.want, test.unit.ticks(test.limit, 5), 1e-9, "%v %v", test.unit, test.limit)
	}
	assert.Less(t, len(Nanoseconds.ticks(math.MaxInt64, 5)), 8)
}

// Charts with the same scale have room for the highest stack of bars.
func TestSameScale(t *testing.T) {
	a := Chart{Until: 3, Series: []Series{{Values: []float64{1, 2}}, {Values: []float64{5, 1, 4}}, {Shape: Line, Values: []float64{3, math.NaN()}}}}
	b := Chart{Until: 9, Series: []Series{{Values: []float64{4}}}}
	SameScale(&a, &b)
	assert.Equal(t, []float64{6, 6}, []float64{a.Top, b.Top})
	assert.Equal(t, []time.Duration{9, 9}, []time.Duration{a.Until, b.Until})
}
