package dashboard

import (
	"cmp"
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/weir-go/weir/internal/recovered"
)

// replacement stands for bytes that are not UTF-8.
var replacement = []byte("\uFFFD")

// shorten returns text with at most n bytes of it and valid UTF-8.
func shorten(text string, n int) string {
	if len(text) > n {
		text = firstBytes(text, n) + "…"
	}
	return strings.ToValidUTF8(text, "\uFFFD")
}

// firstBytes returns at most the first n bytes of text, without a part of a character at the end.
func firstBytes(text string, n int) string {
	if len(text) <= n {
		return text
	}
	for n > 0 && !utf8.RuneStart(text[n]) {
		n--
	}
	return text[:n]
}

// errorText returns the text of an error, shortened. An Error method of the program can panic.
func errorText(err error) string {
	text := "(its Error method panicked)"
	recovered.Call("dashboard: Error", func() { text = err.Error() })
	return shorten(text, maxText)
}

// prefixed returns text after prefix, or nothing if there is no text.
func prefixed(prefix, text string) string {
	if text == "" {
		return ""
	}
	return prefix + text
}

// printable returns text without characters that change how other text is shown: control characters, and marks that turn
// the direction of writing. A name in a terminal or a log must not look like another one, or move the cursor.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || unicode.Is(unicode.Cf, r) || r == '\u2028' || r == '\u2029' {
			return '\uFFFD'
		}
		return r
	}, strings.ToValidUTF8(text, "\uFFFD"))
}

// printableLines is printable for a text of several lines.
func printableLines(text string) string {
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		lines[i] = printable(strings.ReplaceAll(line, "\t", "    "))
	}
	return strings.Join(lines, "\n")
}

// cell returns a value as a cell of a table in text: on one line, and "-" if it is empty or not known. A float is a rate.
func cell(v any) string {
	var text string
	switch v := v.(type) {
	case *int64:
		if v != nil {
			text = fmt.Sprint(*v)
		}
	case *float64:
		if v != nil {
			text = strings.ReplaceAll(rateText(*v), "\u202f", "")
		}
	case float64:
		return cell(&v)
	case time.Time:
		if !v.IsZero() {
			text = v.UTC().Format(time.RFC3339)
		}
	default:
		text = printable(strings.ReplaceAll(fmt.Sprint(v), "\n", "; "))
	}
	return cmp.Or(text, "-")
}

// ago returns for how long something has been so, in the largest units: "<1 min", "5 min", "2 h 10 min", "3 d 4 h".
func ago(now, since time.Time) string {
	d := now.Sub(since)
	switch {
	case d < time.Minute:
		return "<1 min"
	case d < time.Hour:
		return fmt.Sprintf("%d min", int(d.Minutes()))
	case d < 24*time.Hour:
		return fmt.Sprintf("%d h %d min", int(d.Hours()), int(d.Minutes())%60)
	default:
		return fmt.Sprintf("%d d %d h", int(d.Hours())/24, int(d.Hours())%24)
	}
}

// clock returns the time of the day in UTC, and the date if it is not today.
func clock(t time.Time) string {
	if now := time.Now().UTC(); now.Sub(t) > 12*time.Hour || t.Sub(now) > 12*time.Hour {
		return t.UTC().Format("2006-01-02 15:04:05")
	}
	return t.UTC().Format(time.TimeOnly)
}

// roundUp rounds a wait up, so that a client that waits as long as the page says does not come too early.
func roundUp(d time.Duration) time.Duration {
	unit := time.Millisecond
	if d > 10*time.Second {
		unit = time.Second
	}
	if r := d.Round(unit); r >= d {
		return r
	}
	return d.Round(unit) + unit
}

// keysText returns how many keys there are, in words.
func keysText(n int64) string {
	if n == 1 {
		return "1 key"
	}
	return fmt.Sprintf("%d keys", n)
}

// rateText returns a rate with as many digits as make sense.
func rateText(r float64) string {
	switch {
	case r == 0:
		return "0"
	case r < 0.095:
		return "<0.1"
	case r < 9.95:
		return fmt.Sprintf("%.1f", r)
	default:
		return countText(int64(r + 0.5))
	}
}

// countText returns a count with a space between thousands.
func countText(n int64) string {
	text := fmt.Sprint(n)
	sign := ""
	if n < 0 {
		sign, text = "-", text[1:]
	}
	var b strings.Builder
	for i, r := range text {
		if i > 0 && (len(text)-i)%3 == 0 {
			b.WriteRune('\u202f')
		}
		b.WriteRune(r)
	}
	return sign + b.String()
}

// maxText bounds the length of texts that come from errors, in bytes.
const maxText = 500

// utc returns t in UTC, and the zero time as it is.
func utc(t time.Time) time.Time {
	if t.IsZero() {
		return time.Time{}
	}
	return t.UTC()
}
