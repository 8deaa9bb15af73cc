package simulate

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"math"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/simulate/internal/render"
)

// hostile are names that a configuration, a client or a log can have.
var hostile = []string{
	"", " ", "<script>alert(1)</script>", `"><img src=x onerror=alert(1)>`, "a\nb\r\n\tc", "'\"&amp;<!--", "]]></style><b>",
	"\x1b[31mred\x1b[0m\x00", "\xff\xfe invalid", "evil\u202Egnp.exe", "\u2066\u2069\u200b", "مرحبا بالعالم", "עברית abc", "漢字と仮名",
	strings.Repeat("very-long-", 2000), strings.Repeat("é\u0301", 5000), strings.Repeat("W", 300), "👩‍👩‍👧‍👦", "\uFFFE\uFFFF",
}

// named returns a result in which everything that has a name has this one.
func named(name string) *Result {
	r := overload(600)
	r.Name, r.Pipeline, r.Assumed = name, name, []string{name, name}
	r.Rejections = map[string]int64{name: 1, name + "2": 2}
	r.Failures = map[string]int64{name: 3, "other": 1}
	for i := range r.Keys.Worst {
		r.Keys.Worst[i].Key = name
	}
	for i := range r.Most {
		r.Most[i].Key = name
	}
	r.keyed = map[string]*keyCounts{name: {offered: 10, admitted: 10}}
	return r
}

func TestView_HostileNames(t *testing.T) {
	for _, name := range hostile {
		r := named(name)
		other := named(name)
		other.keyed[name] = &keyCounts{offered: 10}
		checkView(t, r)
		checkComparison(t, Compare(r, other))
		picture := written(t, func(w io.Writer) error { return WriteResultsSVG(w, name, r, r) })
		checkSVG(t, picture)
		assert.Less(t, len(picture), 100_000)
	}
}

// odd are results at the edges of what there can be.
func odd() map[string]*Result {
	huge := Counts{
		Requests: math.MaxInt64, Offered: math.MaxInt64, Admitted: math.MaxInt64, Queued: math.MaxInt64, Rejected: math.MaxInt64, Succeeded: math.MaxInt64,
		Failed: math.MaxInt64, Calls: math.MaxInt64, Retried: math.MaxInt64, TriedAgain: math.MaxInt64, Satisfied: math.MaxInt64, Unfinished: math.MaxInt64,
	}
	long := Quantiles{Count: math.MaxInt64, Mean: math.MaxInt64, P50: math.MaxInt64, P90: math.MaxInt64, P95: math.MaxInt64, P99: math.MaxInt64, P999: math.MaxInt64, Max: math.MaxInt64}
	point := Point{Counts: Counts{Requests: 1, Offered: 1, Admitted: 1, Succeeded: 1, Calls: 1, Satisfied: 1}, Running: 1, Latency: Quantiles{Count: 1}}
	many := &Result{For: time.Hour, Interval: time.Millisecond, Ended: time.Hour}
	for i := range 20_000 {
		p := point
		p.At = time.Duration(i) * time.Millisecond
		p.Offered = int64(i % 7)
		many.Series = append(many.Series, p)
	}
	return map[string]*Result{
		"empty":       {},
		"one point":   {For: time.Second, Interval: time.Second, Series: []Point{point}, Total: point.Counts, Latency: point.Latency},
		"no interval": {Series: []Point{point, point}},
		"zeros":       {For: time.Minute, Interval: time.Second, Series: make([]Point, 60), Most: []Most{{Window: time.Second}}, Keys: KeyResult{Count: 3, Jain: 1}},
		"huge": {
			Pipeline: "p", For: math.MaxInt64, Ended: math.MaxInt64, Interval: math.MaxInt64 / 2, Instances: math.MaxInt32, Seed: math.MaxUint64,
			Series: []Point{{Counts: huge, Waiting: math.MaxInt64, Running: math.MaxInt64, Latency: long}, {At: math.MaxInt64 / 2, Counts: huge, Latency: long}},
			Total:  huge, Latency: long, Wait: long, Rejections: map[string]int64{"a": math.MaxInt64, "b": math.MaxInt64},
			Keys: KeyResult{Count: math.MaxInt32, Jain: 0.99999, Starved: math.MaxInt32, Unkept: math.MaxInt64, Worst: []KeyCounts{{Offered: math.MaxInt64, Admitted: math.MaxInt64, Rejected: math.MaxInt64, Fair: math.MaxFloat64}}},
			Most: []Most{{Window: math.MaxInt64, Permits: math.MaxInt64, At: math.MaxInt64, KeyPermits: math.MaxInt64, KeyAt: math.MaxInt64}},
		},
		"many points": many,
	}
}

func TestView_OddResults(t *testing.T) {
	all := odd()
	for name, r := range all {
		t.Log(name)
		checkView(t, r)
		for _, other := range all {
			checkComparison(t, Compare(r, other))
		}
		picture := written(t, func(w io.Writer) error {
			return WriteResultsSVG(w, name, r, all["one point"], r)
		})
		checkSVG(t, picture)
	}
}

func checkView(t *testing.T, r *Result) {
	t.Helper()
	checkText(t, written(t, r.WriteTable))
	checkSVG(t, written(t, r.WriteSVG))
	checkHTML(t, written(t, r.WriteHTML))
}

func checkComparison(t *testing.T, c *Comparison) {
	t.Helper()
	checkText(t, written(t, c.WriteTable))
	checkSVG(t, written(t, c.WriteSVG))
	checkHTML(t, written(t, c.WriteHTML))
}

// checkText checks that a terminal shows what is meant, in lines of at most 100 cells.
func checkText(t *testing.T, text []byte) {
	t.Helper()
	assert.Less(t, len(text), 200_000)
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSuffix(line, "\n")
		assert.LessOrEqual(t, render.Cells(line), 100, "%q", line)
		for _, r := range line {
			if unicode.IsControl(r) {
				t.Errorf("control character %U in %q", r, line)
			}
		}
	}
}

// checkSVG checks that a picture is well-formed, and has no elements and attributes other than what this package writes.
func checkSVG(t *testing.T, picture []byte) {
	t.Helper()
	assert.Less(t, len(picture), 250_000)
	decoder := xml.NewDecoder(bytes.NewReader(picture))
	elements := map[string]bool{
		"svg": true, "title": true, "desc": true, "style": true, "rect": true, "path": true, "text": true,
	}
	for {
		token, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
		start, ok := token.(xml.StartElement)
		if !ok {
			continue
		}
		require.True(t, elements[start.Name.Local], start.Name.Local)
		for _, a := range start.Attr {
			assert.NotContains(t, []string{"href", "src", "style"}, a.Name.Local)
			assert.False(t, strings.HasPrefix(a.Name.Local, "on"), a.Name.Local)
			assert.NotContains(t, a.Value, "NaN")
			assert.NotContains(t, a.Value, "Inf")
		}
	}
	assert.NotContains(t, strings.ReplaceAll(string(picture), `xmlns="http://www.w3.org/2000/svg"`, ""), "http")
}

// checkHTML checks that a page has no elements that names could have brought, and that its parts are closed.
func checkHTML(t *testing.T, page []byte) {
	t.Helper()
	text := string(page)
	lower := strings.ToLower(text)
	for _, bad := range []string{"<script", "<img", "<b>", "<!--", "http://www.w3.org/1999", "zgotmplz"} {
		assert.NotContains(t, lower, bad)
	}
	for _, element := range []string{"header", "main", "footer", "section", "table", "thead", "tbody", "tr", "ul", "svg", "style"} {
		opened := strings.Count(text, "<"+element+">") + strings.Count(text, "<"+element+" ")
		assert.Equal(t, opened, strings.Count(text, "</"+element+">"), element)
	}
}
