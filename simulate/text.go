package simulate

import (
	"math"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/weir-go/weir/internal/durationtext"
)

// printable returns text without characters that change how other text is shown, such as control characters and marks
// that turn the direction of writing: a key must not look like another one, or move the cursor of a terminal. The dashboard
// has the same rule.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || unicode.Is(unicode.Cf, r) || r == '\u2028' || r == '\u2029' || r == '\uFFFE' || r == '\uFFFF' {
			return '\uFFFD'
		}
		return r
	}, strings.ToValidUTF8(text, "\uFFFD"))
}

// isolateBegin and isolateEnd keep the direction of what is between them to itself.
const isolateBegin, isolateEnd = "\u2068", "\u2069"

// notIsolated removes them, because not every terminal knows them.
var notIsolated = strings.NewReplacer(isolateBegin, "", isolateEnd, "")

// isolated returns text so that letters that are written from right to left do not move the text around it.
func isolated(text string) string {
	for _, r := range text {
		if r >= 0x590 && r < 0x900 || r >= 0xFB1D && r < 0xFF00 || r >= 0x10800 && r < 0x11000 || r >= 0x1E800 && r < 0x1F000 {
			return isolateBegin + text + isolateEnd
		}
	}
	return text
}

// cells returns how many cells of a terminal text takes.
func cells(text string) int {
	n := 0
	for _, r := range text {
		n += runeCells(r)
	}
	return n
}

func runeCells(r rune) int {
	switch {
	case r < 0x300:
		return 1
	case unicode.Is(unicode.Mn, r), unicode.Is(unicode.Me, r), unicode.Is(unicode.Cf, r):
		return 0
	case r >= 0x1100 && (r < 0x1160 || r >= 0x2E80 && r < 0xA4D0 || r >= 0xAC00 && r < 0xD7A4 || r >= 0xF900 && r < 0xFB00 ||
		r >= 0xFE30 && r < 0xFE70 || r >= 0xFF00 && r < 0xFF61 || r >= 0xFFE0 && r < 0xFFE7 || r >= 0x1F300 && r < 0x1FB00 ||
		r >= 0x20000 && r < 0x40000):
		return 2
	}
	return 1
}

// shorten returns text so that it takes at most n cells. Where it leaves something out, it ends with an ellipsis.
func shorten(text string, n int) string {
	// A hostile key can have a million combining marks in one cell.
	const maxBytes = 4
	if cells(text) <= n && len(text) <= maxBytes*max(n, 0) {
		return text
	}
	used := 0
	for i, r := range text {
		used += runeCells(r)
		if used > n-1 || i+utf8.RuneLen(r) > maxBytes*n-len("…") {
			return text[:i] + "…"
		}
	}
	return text
}

// wrap breaks text into lines of at most width cells, at its spaces where it can.
func wrap(text string, width int) []string {
	var lines []string
	line := ""
	for word := range strings.FieldsSeq(text) {
		for {
			joined := strings.TrimPrefix(line+" "+word, " ")
			if cells(joined) <= width {
				line = joined
				break
			}
			if line != "" {
				lines, line = append(lines, line), ""
				continue
			}
			head := firstCells(word, width)
			lines, word = append(lines, head), word[len(head):]
		}
	}
	if line != "" {
		lines = append(lines, line)
	}
	return lines
}

// firstCells returns the beginning of text that takes at most n cells, and at least one character.
func firstCells(text string, n int) string {
	used := 0
	for i, r := range text {
		used += runeCells(r)
		if used > n && i > 0 {
			return text[:i]
		}
	}
	return text
}

// formatCount returns n with commas, such as "1,234", or in short if it would be longer than 13 characters.
func formatCount(n int64) string {
	if n <= -1e10 || n >= 1e10 {
		return strconv.FormatFloat(float64(n), 'g', 4, 64)
	}
	digits := strconv.FormatInt(n, 10)
	var b strings.Builder
	for i, digit := range digits {
		if left := len(digits) - i; i > 0 && digits[i-1] != '-' && left%3 == 0 {
			b.WriteByte(',')
		}
		b.WriteRune(digit)
	}
	return b.String()
}

// formatShort is formatCount for narrow columns: from ten million on it has three digits, such as "12.3M".
func formatShort(n int64) string {
	if n >= 1e7 {
		return formatNumber(float64(n))
	}
	return formatCount(n)
}

// formatChange is formatCount with a sign.
func formatChange(n int64) string {
	if n > 0 {
		return "+" + formatCount(n)
	}
	return formatCount(n)
}

// formatNumber returns v with at most three digits after the first, such as "1.5k", for the ticks of an axis.
func formatNumber(v float64) string {
	abs := math.Abs(v)
	for _, unit := range []struct {
		size float64
		name string
	}{{1e18, "E"}, {1e15, "P"}, {1e12, "T"}, {1e9, "G"}, {1e6, "M"}, {1e4, "k"}} {
		if abs >= unit.size {
			if unit.name == "k" {
				unit.size = 1e3
			}
			return strconv.FormatFloat(roundDigits(v/unit.size, 3), 'f', -1, 64) + unit.name
		}
	}
	if abs >= 1000 {
		return formatCount(int64(math.Round(v)))
	}
	return strconv.FormatFloat(roundDigits(v, 3), 'f', -1, 64)
}

// roundDigits rounds v to that many significant digits, and to no more than six after the point.
func roundDigits(v float64, digits int) float64 {
	if v == 0 {
		return 0
	}
	scale := math.Pow(10, min(float64(digits-1)-math.Floor(math.Log10(math.Abs(v))), 6))
	return math.Round(v*scale) / scale
}

// formatShare returns part as a percentage of whole, such as "7.9%". A share that is not all and not nothing does not look
// like it. If whole is 0, it returns "–".
func formatShare(part, whole int64) string {
	if whole == 0 {
		return "–"
	}
	return formatPercent(float64(part) / float64(whole) * 100)
}

func formatPercent(p float64) string {
	switch {
	case p > 0 && p < 0.1:
		return "<0.1%"
	case p > 99.9 && p < 100:
		return ">99.9%"
	}
	return strconv.FormatFloat(p, 'f', 1, 64) + "%"
}

// formatPoints returns the difference of two percentages, in points.
func formatPoints(before, after float64) string {
	text := strconv.FormatFloat(after-before, 'f', 1, 64)
	if text == "0.0" || text == "-0.0" {
		return "0.0"
	}
	if after > before {
		return "+" + text
	}
	return text
}

// formatDuration returns d with three digits, such as "1.25s" and "350µs".
func formatDuration(d time.Duration) string {
	abs := d.Abs()
	switch {
	case abs < time.Second:
		// To the unit that has at most three digits before the point.
		for _, unit := range []time.Duration{time.Millisecond, time.Microsecond} {
			if abs >= unit {
				return d.Round(max(time.Duration(math.Pow10(len(strconv.FormatInt(int64(abs), 10))-3)), 1)).String()
			}
		}
		return formatTime(d)
	case abs < 100*time.Second:
		d = d.Round(max(time.Duration(math.Pow10(len(strconv.FormatInt(int64(abs), 10))-3)), 1))
	case abs < time.Hour:
		d = d.Round(time.Second)
	default:
		d = d.Round(time.Minute)
	}
	return formatTime(d)
}

// formatDurationChange is formatDuration with a sign.
func formatDurationChange(d time.Duration) string {
	if d > 0 {
		return "+" + formatDuration(d)
	}
	return formatDuration(d)
}

// formatTime returns d exactly, without units that are 0, such as "10m", "1h0m30s" and "0".
func formatTime(d time.Duration) string {
	if d == 0 {
		return "0"
	}
	return durationtext.Of(d)
}

// formatMoment returns d to the millisecond, to the microsecond if it is less than a second, or exactly if it is less than
// a millisecond.
func formatMoment(d time.Duration) string {
	switch {
	case d >= time.Second:
		d = d.Round(time.Millisecond)
	case d >= time.Millisecond:
		d = d.Round(time.Microsecond)
	}
	return formatTime(d)
}

// formatStep returns d to about a thousandth of a step, such as "333.3ms" for the third row of 166.666665ms:
// few intervals are round numbers.
func formatStep(d, step time.Duration) string {
	unit := time.Duration(1)
	for unit <= step/10_000 {
		unit *= 10
	}
	return formatTime(d.Round(unit))
}

// plural returns "1 key" or "2 keys".
func plural(n int64, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return formatCount(n) + " " + many
}
