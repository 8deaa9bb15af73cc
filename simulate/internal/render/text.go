package render

import (
	"math"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/weir-go/weir/internal/durationtext"
)

// Printable returns text without characters that change how other text is shown, such as control characters and marks
// that turn the direction of writing: a key must not look like another one, or move the cursor of a terminal. The dashboard
// has the same rule.
func Printable(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || unicode.Is(unicode.Cf, r) || r == '\u2028' || r == '\u2029' || r == '\uFFFE' || r == '\uFFFF' {
			return '\uFFFD'
		}
		return r
	}, strings.ToValidUTF8(text, "\uFFFD"))
}

// Cells returns how many cells of a terminal text takes.
func Cells(text string) int {
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
	case unicode.In(r, unicode.Mn, unicode.Me, unicode.Cf):
		return 0
	case r >= 0x1100 && (r < 0x1160 || r >= 0x2E80 && r < 0xA4D0 || r >= 0xAC00 && r < 0xD7A4 || r >= 0xF900 && r < 0xFB00 ||
		r >= 0xFE30 && r < 0xFE70 || r >= 0xFF00 && r < 0xFF61 || r >= 0xFFE0 && r < 0xFFE7 || r >= 0x1F300 && r < 0x1FB00 ||
		r >= 0x20000 && r < 0x40000):
		return 2
	}
	return 1
}

// Shorten returns text so that it takes at most n cells. Where it leaves something out, it ends with an ellipsis.
func Shorten(text string, n int) string {
	// A hostile key can have a million combining marks in one cell.
	const maxBytes = 4
	if Cells(text) <= n && len(text) <= maxBytes*max(n, 0) {
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

// wrap breaks text at its spaces into lines of at most width cells. A word that is longer is shortened.
func wrap(text string, width int) []string {
	var lines []string
	line := ""
	for word := range strings.FieldsSeq(text) {
		word = Shorten(word, width)
		if joined := strings.TrimPrefix(line+" "+word, " "); Cells(joined) <= width {
			line = joined
			continue
		}
		lines, line = append(lines, line), word
	}
	if line != "" {
		lines = append(lines, line)
	}
	return lines
}

// Count returns n with commas, such as "1,234", or in short if it would be longer than 13 characters.
func Count(n int64) string {
	if n <= -1e10 || n >= 1e10 {
		return strconv.FormatFloat(float64(n), 'g', 4, 64)
	}
	digits := strconv.FormatInt(n, 10)
	for i := len(digits) - 3; i > 0 && digits[i-1] != '-'; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}

// Plural returns "1 key" or "2 keys".
func Plural(n int64, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return Count(n) + " " + many
}

// Change returns a difference as format does, with a sign.
func Change[T ~int64](n T, format func(T) string) string {
	if n > 0 {
		return "+" + format(n)
	}
	return format(n)
}

// Number returns v with at most three digits after the first, such as "1.5k".
func Number(v float64) string {
	abs := math.Abs(v)
	for _, unit := range []struct {
		from, size float64
		name       string
	}{{1e18, 1e18, "E"}, {1e15, 1e15, "P"}, {1e12, 1e12, "T"}, {1e9, 1e9, "G"}, {1e6, 1e6, "M"}, {1e4, 1e3, "k"}} {
		if abs >= unit.from {
			return Digits(v/unit.size, 3) + unit.name
		}
	}
	if abs >= 1000 {
		return Count(int64(math.Round(v)))
	}
	return Digits(v, 3)
}

// Digits returns v with that many significant digits, and no more than six after the point.
func Digits(v float64, digits int) string {
	if v != 0 {
		scale := math.Pow(10, min(float64(digits-1)-math.Floor(math.Log10(math.Abs(v))), 6))
		v = math.Round(v*scale) / scale
	}
	return strconv.FormatFloat(v, 'f', -1, 64)
}

// Share returns part as a percentage of whole, such as "7.9%". If whole is 0, it returns "–".
func Share(part, whole int64) string {
	if whole == 0 {
		return "–"
	}
	return Percent(float64(part) / float64(whole) * 100)
}

// Percent returns p with one digit after the point. A share that is not all and not nothing does not look like it.
func Percent(p float64) string {
	switch {
	case p > 0 && p < 0.1:
		return "<0.1%"
	case p > 99.9 && p < 100:
		return ">99.9%"
	}
	return strconv.FormatFloat(p, 'f', 1, 64) + "%"
}

// Points returns the difference of two percentages, with a sign.
func Points(difference float64) string {
	text := strconv.FormatFloat(difference, 'f', 1, 64)
	if text == "-0.0" {
		return "0.0"
	}
	if difference > 0 && text != "0.0" {
		return "+" + text
	}
	return text
}

// Time returns d exactly, without units that are 0, such as "10m", "1h0m30s" and "0".
func Time(d time.Duration) string {
	if d == 0 {
		return "0"
	}
	return durationtext.Of(d)
}

// Duration returns d with three digits, such as "1.25s" and "350µs".
func Duration(d time.Duration) string {
	switch abs := d.Abs(); {
	case abs >= time.Hour:
		d = d.Round(time.Minute)
	case abs >= 100*time.Second:
		d = d.Round(time.Second)
	case abs >= time.Microsecond:
		d = d.Round(time.Duration(math.Pow10(len(strconv.FormatInt(int64(abs), 10)) - 3)))
	}
	return Time(d)
}

// Moment returns d to the millisecond, to the microsecond if it is less than a second, or exactly if it is less than
// a millisecond.
func Moment(d time.Duration) string {
	switch {
	case d >= time.Second:
		d = d.Round(time.Millisecond)
	case d >= time.Millisecond:
		d = d.Round(time.Microsecond)
	}
	return Time(d)
}
