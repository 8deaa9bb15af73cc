package dashboard

import (
	"strings"
	"unicode"
	"unicode/utf8"
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
