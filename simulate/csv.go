package simulate

import (
	"bytes"
	"cmp"
	"slices"
	"strconv"
	"strings"
)

// ReadCSV reads a recording of a CSV file, which can be compressed with gzip. o can be nil.
//
// The columns are the time, the key and the cost of a request, in this order. If the first line has no time, it is a
// header, the columns can have any order, and columns of other names are ignored; the names are "time", "key" and "cost"
// unless o has others. The key and the cost can be left out: then the key is empty and the cost 1.
//
// A time is a date as in RFC 3339, such as 2026-03-29T01:30:00.5+01:00; a number of seconds, milliseconds, microseconds
// or nanoseconds since 1970; or, below 100,000,000, the seconds from the beginning, which can also be a duration such as
// 1m30s. The separator is a comma, a semicolon or a tab. A value in quotes can have separators, but not a line break.
//
// ReadCSV reads the whole file to check it, and each simulation reads it again: the requests are not kept in memory.
func ReadCSV(name string, o *RecordingOptions) (*Recording, error) {
	f := &recordingFile{name: name, parser: newCSVParser}
	if o != nil {
		f.options = *o
	}
	return f.recording()
}

// A csvParser is the [lineParser] of CSV. Its arrays are for the time, the key and the cost.
type csvParser struct {
	names     [3]string // of the columns
	required  [3]bool
	columns   [3]int // their indexes; -1: there is none
	separator byte
	named     bool // there must be a header
	begun     bool
	fields    []string
}

func newCSVParser(o *RecordingOptions) lineParser {
	return &csvParser{
		names:    [3]string{cmp.Or(o.Time, "time"), cmp.Or(o.Key, "key"), cmp.Or(o.Cost, "cost")},
		required: [3]bool{true, o.Key != "", o.Cost != ""},
		named:    o.Time != "" || o.Key != "" || o.Cost != "",
	}
}

func (c *csvParser) parse(line []byte) (at moment, key string, cost int, ok bool, err error) {
	if !c.begun {
		c.separator = separatorOf(line)
	}
	if c.fields, err = splitCSV(c.fields[:0], string(line), c.separator); err != nil {
		return at, key, cost, ok, err
	}
	if !c.begun {
		header, err := c.begin()
		if err != nil || header {
			return at, key, cost, false, err
		}
	}
	if at, err = parseMoment(c.field(0)); err != nil {
		return at, key, cost, ok, err
	}
	cost, err = parseCost(c.field(2))
	return at, c.field(1), cost, true, err
}

func (c *csvParser) finish() error { return nil }

// field returns the value of the time, the key or the cost in the line, or "".
func (c *csvParser) field(i int) string {
	if at := c.columns[i]; at >= 0 && at < len(c.fields) {
		return c.fields[at]
	}
	return ""
}

// begin finds the columns by the first line, and reports whether it is a header.
func (c *csvParser) begin() (header bool, err error) {
	_, noTime := parseMoment(c.fields[0])
	if noTime == nil && !c.named {
		c.columns, c.begun = [3]int{0, 1, 2}, true
		return false, nil
	}
	for i, name := range c.names {
		isName := func(f string) bool { return strings.EqualFold(strings.TrimSpace(f), name) }
		c.columns[i] = slices.IndexFunc(c.fields, isName)
		switch {
		case c.columns[i] >= 0 && slices.ContainsFunc(c.fields[c.columns[i]+1:], isName):
			return false, badLineError("the header has the column " + shown(name) + " twice")
		case c.columns[i] >= 0 || !c.required[i]:
		case noTime != nil && !c.named:
			return false, badLineError("it is no header with the column " + shown(name) + ", and no request: " + noTime.Error())
		default:
			return false, badLineError("the first line must be a header with the column " + shown(name))
		}
	}
	c.begun = true
	return true, nil
}

// separatorOf returns the separator that the first line has first outside of quotes, or a comma.
func separatorOf(line []byte) byte {
	quoted := false
	for _, b := range line {
		switch {
		case b == '"':
			quoted = !quoted
		case !quoted && bytes.IndexByte([]byte(",;\t"), b) >= 0:
			return b
		}
	}
	return ','
}

// splitCSV appends the fields of a line.
func splitCSV(fields []string, line string, separator byte) ([]string, error) {
	for {
		field, rest := line, ""
		more := false
		if strings.HasPrefix(line, `"`) {
			end := 1
			for {
				i := strings.IndexByte(line[end:], '"')
				if i < 0 {
					return fields, badLineError("a quotation mark is not closed in the line")
				}
				end += i + 1
				if !strings.HasPrefix(line[end:], `"`) {
					break
				}
				end++ // two stand for one
			}
			field, rest = strings.ReplaceAll(line[1:end-1], `""`, `"`), line[end:]
			if more = rest != ""; more {
				if rest[0] != separator {
					return fields, badLineError("after a closing quotation mark there must be a separator")
				}
				rest = rest[1:]
			}
		} else if i := strings.IndexByte(line, separator); i >= 0 {
			field, rest, more = line[:i], line[i+1:], true
		}
		fields = append(fields, field)
		if !more {
			return fields, nil
		}
		line = rest
	}
}

// parseCost reads the cost of a request. It is 1 if it is missing.
func parseCost(text string) (int, error) {
	text = strings.TrimSpace(text)
	if text == "" || text == "-" {
		return 1, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 {
		return 0, badLineError("the cost " + shown(text) + " must be a whole number of at least 0")
	}
	return n, nil
}
