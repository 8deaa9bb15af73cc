package input

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

type moment struct {
	ns       int64 // since the Unix epoch, or since the beginning
	absolute bool
}

// The layouts of times. Each can have a fraction of a second. Databases write a space in place of the T, and short zones.
var layouts = []string{time.RFC3339, "2006-01-02T15:04:05Z0700", "2006-01-02T15:04:05Z07"}

const commonLayout = "02/Jan/2006:15:04:05 -0700"

// parseMoment reads a time as recordings have it: in RFC 3339, as in the common log format, as a number, or as a duration.
func parseMoment(text string) (moment, error) {
	text = strings.TrimSpace(text)
	switch {
	case text == "":
		return moment{}, badLineError("the time is missing")
	case len(text) > 64:
		return moment{}, badLineError("the time " + shown(text) + " is too long")
	case len(text) > 10 && text[4] == '-' && text[7] == '-':
		return parseDate(text)
	case len(text) > 11 && text[2] == '/' && text[11] == ':':
		t, err := time.Parse(commonLayout, text)
		if err != nil {
			return moment{}, badLineError("the time " + shown(text) + " is not like 02/Jan/2006:15:04:05 -0700")
		}
		return momentOf(t, text)
	}
	if m, ok, err := parseNumber(text); ok || err != nil {
		return m, err
	}
	d, err := time.ParseDuration(text)
	switch {
	case err != nil:
		return moment{}, badLineError("the time " + shown(text) + ` must be like 2006-01-02T15:04:05Z, Unix seconds, or a duration such as "1.5s"`)
	case d < 0:
		return moment{}, badLineError("the time " + shown(text) + " must be at least 0")
	}
	return moment{ns: int64(d)}, nil
}

func parseDate(text string) (moment, error) {
	iso := text[:10] + "T" + text[11:]
	for _, layout := range layouts {
		if t, err := time.Parse(layout, iso); err == nil {
			return momentOf(t, text)
		}
	}
	if _, err := time.Parse("2006-01-02T15:04:05", iso); err == nil {
		return moment{}, badLineError("the time " + shown(text) + " has no time zone, such as Z or +01:00")
	}
	return moment{}, badLineError("the time " + shown(text) + " is not like 2006-01-02T15:04:05Z")
}

func momentOf(t time.Time, text string) (moment, error) {
	if t.Year() < 1678 || t.Year() > 2261 { // the years of UnixNano
		return moment{}, badLineError("the year of the time " + shown(text) + " is not between 1678 and 2261")
	}
	return moment{ns: t.UnixNano(), absolute: true}, nil
}

// parseNumber reads a number, which has the unit that makes it a time of our age: from 1e8 on it is in Unix seconds,
// from 1e11 on in milliseconds, from 1e14 on in microseconds, and from 1e17 on in nanoseconds. Smaller numbers are
// seconds from the beginning. ok is false if the text is not a number.
func parseNumber(text string) (m moment, ok bool, err error) {
	if strings.ContainsAny(text, "eE") {
		f, err := strconv.ParseFloat(text, 64)
		if err != nil || math.Abs(f) > 1e19 {
			return moment{}, false, nil //nolint:nilerr // it is no number
		}
		text = strconv.FormatFloat(f, 'f', -1, 64)
	}
	whole, fraction, _ := strings.Cut(text, ".")
	digits := strings.TrimPrefix(whole, "-")
	if digits == "" || !isDigits(digits) || !isDigits(fraction) {
		return moment{}, false, nil
	}
	n, err := strconv.ParseInt(digits, 10, 64)
	switch {
	case err != nil:
		return moment{}, false, badLineError("the time " + shown(text) + " is out of range")
	case digits != whole && (n != 0 || strings.Trim(fraction, "0") != ""):
		return moment{}, false, badLineError("the time " + shown(text) + " must be at least 0")
	}
	places := 9 // how many digits of the fraction are nanoseconds
	for limit := int64(1e11); places > 0 && n >= limit; limit *= 1000 {
		places -= 3
	}
	unit := int64(math.Pow10(places))
	if n > math.MaxInt64/unit-1 {
		return moment{}, false, badLineError("the time " + shown(text) + " is out of range")
	}
	if len(fraction) > places {
		fraction = fraction[:places]
	}
	part, _ := strconv.ParseInt("0"+fraction+strings.Repeat("0", places-len(fraction)), 10, 64) // digits only
	return moment{ns: n*unit + part, absolute: n >= 1e8}, true, nil
}

func isDigits(text string) bool { return strings.Trim(text, "0123456789") == "" }

// shown returns a part of a line for a message, in quotes, and not too long.
func shown(text string) string {
	const most = 40
	if len(text) > most {
		return fmt.Sprintf("%q…", text[:most])
	}
	return strconv.Quote(text)
}
