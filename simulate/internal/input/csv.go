package input

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/csv"
	"slices"
	"strconv"
	"strings"
)

// A csvParser is the parser of [CSV]. Its arrays are for the time, the key and the cost.
type csvParser struct {
	names     [3]string // of the columns
	required  [3]bool
	columns   [3]int // their indexes; -1: there is none
	separator rune
	named     bool // there must be a header
	begun     bool
	line      bytes.Reader
	buffer    *bufio.Reader // of line
	fields    []string
}

// CSV is the format of files with a time, a key and a cost in each line, and maybe a header.
func CSV(o *Options) Parser {
	return &csvParser{
		names:    [3]string{cmp.Or(o.Time, "time"), cmp.Or(o.Key, "key"), cmp.Or(o.Cost, "cost")},
		required: [3]bool{true, o.Key != "", o.Cost != ""},
		named:    o.Time != "" || o.Key != "" || o.Cost != "",
		buffer:   bufio.NewReader(nil),
	}
}

func (c *csvParser) parse(line []byte) (r record, ok bool, err error) {
	if !c.begun {
		c.separator = separatorOf(line)
	}
	if err := c.split(line); err != nil {
		return r, false, err
	}
	if !c.begun {
		header, err := c.begin()
		if err != nil || header {
			return r, false, err
		}
	}
	if r.at, err = parseMoment(c.field(0)); err != nil {
		return r, false, err
	}
	r.key = c.field(1)
	r.cost, err = parseCost(c.field(2))
	return r, true, err
}

func (c *csvParser) finish() error { return nil }

// split sets the fields of a line. Each line is read for itself, so that a quotation mark that is not closed spoils only one.
func (c *csvParser) split(line []byte) (err error) {
	c.line.Reset(line)
	c.buffer.Reset(&c.line)
	r := csv.NewReader(c.buffer)
	r.Comma, r.FieldsPerRecord = c.separator, -1
	if c.fields, err = r.Read(); err != nil {
		return badLineError("a quotation mark in the line has no other one, or stands where there can be none")
	}
	return nil
}

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
func separatorOf(line []byte) rune {
	quoted := false
	for _, b := range line {
		switch {
		case b == '"':
			quoted = !quoted
		case !quoted && (b == ',' || b == ';' || b == '\t'):
			return rune(b)
		}
	}
	return ','
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
