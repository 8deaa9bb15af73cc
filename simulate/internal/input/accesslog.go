package input

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strings"
	"unicode/utf8"
)

// The fields of JSON that have the time and the key if the options do not say so, the most likely ones first.
var (
	timeFields = []string{"ts", "start_time", "msec", "time_iso8601", "time_local", "@timestamp", "timestamp", "time"}
	keyFields  = []string{
		"request.client_ip", "request.remote_ip", "remote_addr", "downstream_remote_address", "client_ip", "remote_ip",
	}
)

// A logParser is the parser of [AccessLog]. It decides for each line whether it is JSON.
type logParser struct {
	*Options
	times           []string // the fields of JSON that can have the time
	combined        combinedLine
	hasKey, hasCost bool // whether a line had them
}

// AccessLog is the format of access logs: an object of JSON a line, or the common or combined log format.
func AccessLog(o *Options) Parser {
	l := &logParser{Options: o, times: timeFields}
	if o.Time != "" {
		l.times = []string{o.Time}
	}
	return l
}

func (l *logParser) parse(line []byte) (r record, ok bool, err error) {
	line = bytes.TrimSpace(line)
	if line[0] == '{' {
		r, err = l.parseJSON(line)
	} else {
		r, err = l.parseCombined(string(line))
	}
	r.key = keyOf(r.key)
	return r, err == nil, err
}

func (l *logParser) parseJSON(line []byte) (r record, err error) {
	var object map[string]any
	d := json.NewDecoder(bytes.NewReader(line))
	d.UseNumber()
	if !utf8.Valid(line) {
		return r, badLineError("the line is not UTF-8")
	}
	if err := d.Decode(&object); err != nil {
		return r, errJSON
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return r, errJSON
	}
	text, found := first(object, l.times...)
	if !found {
		return r, noField("time", l.Time, timeFields)
	}
	if r.at, err = parseMoment(text); err != nil {
		return r, err
	}
	if r.key, found = first(object, l.Key); !found {
		other, isRequest := first(object, keyFields...) // what has none of them is another message than that of a request
		switch {
		case !isRequest:
			return r, noField("key", l.Key, keyFields)
		case l.Key == "":
			r.key, found = other, true
		}
	}
	l.hasKey = l.hasKey || found
	text, found = first(object, l.Cost)
	l.hasCost = l.hasCost || found
	r.cost, err = parseCost(text)
	return r, err
}

// errJSON is the error of a line that is not an object.
const errJSON = badLineError("the line is not a JSON object, or not the whole of one")

func first(object map[string]any, paths ...string) (string, bool) {
	for _, path := range paths {
		if text, found := valueAt(object, path); found && path != "" {
			return text, true
		}
	}
	return "", false
}

// valueAt returns the text, number, true or false at a path of names with dots, which can be in the names, too. Of arrays, the
// first element counts. It returns "" of null.
func valueAt(v any, path string) (string, bool) {
	for {
		a, ok := v.([]any)
		if !ok || len(a) == 0 {
			break
		}
		v = a[0]
	}
	switch v := v.(type) {
	case map[string]any:
		for end := len(path); end > 0; end = strings.LastIndexByte(path[:end], '.') {
			if inner, ok := v[path[:end]]; ok {
				if text, found := valueAt(inner, strings.TrimPrefix(path[end:], ".")); found {
					return text, true
				}
			}
		}
		return "", false
	case nil:
		return "", path == ""
	case []any:
		return "", false
	}
	return fmt.Sprint(v), path == ""
}

// noField returns the error that a line does not have a field. If the options do not name it, it is one of the usual.
func noField(what, name string, usual []string) error {
	if name != "" {
		return badLineError("the line has no field " + shown(name))
	}
	return badLineError("the line has no field for the " + what + ", which would be one of " + strings.Join(usual, ", "))
}

func (l *logParser) parseCombined(line string) (r record, err error) {
	if err := l.combined.parse(line); err != nil {
		return r, err
	}
	values := [3]string{}
	for i, name := range [3]string{cmp.Or(l.Time, "time_local"), cmp.Or(l.Key, "remote_addr"), l.Cost} {
		if name == "" {
			continue
		}
		field := slices.Index(combinedFields[:], name)
		if field < 0 {
			return r, badLineError("the combined log format has no field " + shown(name) + ", it has " + strings.Join(combinedFields[:], ", "))
		}
		values[i] = l.combined.values[field]
	}
	l.hasKey, l.hasCost, r.key = true, true, values[1]
	if r.at, err = parseMoment(values[0]); err != nil {
		return r, err
	}
	r.cost, err = parseCost(values[2])
	return r, err
}

// finish returns an error if no line had a field that the options name.
func (l *logParser) finish() error {
	switch {
	case !l.hasKey && l.Key != "":
		return fmt.Errorf("no line has the field %q for the key", l.Key)
	case !l.hasCost && l.Cost != "":
		return fmt.Errorf("no line has the field %q for the cost", l.Cost)
	}
	return nil
}

// keyOf returns the key for a value: without the port of an address, and empty for the "-" that logs have for nothing.
func keyOf(value string) string {
	if value == "-" {
		return ""
	}
	if strings.IndexByte(value, ':') > 0 {
		if a, err := netip.ParseAddrPort(value); err == nil {
			return a.Addr().String()
		}
	}
	return value
}

// combinedFields are the fields of the combined log format, by the names that nginx has for them.
var combinedFields = [...]string{
	"remote_addr", "remote_user", "time_local", "request", "status", "body_bytes_sent", "http_referer", "http_user_agent",
}

// A combinedLine is a line of the combined log format. The common log format has no referer and no user agent. Apache can
// put the virtual host before both. Fields that are added at the end are ignored.
type combinedLine struct{ values [len(combinedFields)]string }

func (c *combinedLine) parse(line string) error {
	*c = combinedLine{}
	client, rest, ok := strings.Cut(line, " [")
	at, rest, closed := strings.Cut(rest, "] ")
	if !ok || !closed {
		return badLineError("the line is neither JSON nor in the combined log format: it has no time in brackets")
	}
	names := strings.Fields(client)
	if len(names) > 3 {
		if _, err := netip.ParseAddr(names[0]); err != nil { // the virtual host
			names = names[1:]
		}
	}
	if len(names) < 3 {
		return badLineError("the line is not in the combined log format: before the time there must be an address and two names")
	}
	c.values[0], c.values[1], c.values[2] = names[0], strings.Join(names[2:], " "), at
	for i := 3; i < len(c.values) && rest != ""; i++ {
		if rest[0] != '"' {
			c.values[i], rest, _ = strings.Cut(rest, " ")
			continue
		}
		end := closingQuote(rest)
		if end < 0 {
			return badLineError("a quotation mark is not closed in the line")
		}
		c.values[i], rest = rest[1:end], strings.TrimPrefix(rest[end+1:], " ")
	}
	if c.values[4] == "" {
		return badLineError("the line is not in the combined log format: it has no status")
	}
	return nil
}

// closingQuote returns the index of the quotation mark that closes the one at the beginning, or -1.
func closingQuote(s string) int {
	for i := 1; i < len(s); i++ {
		switch s[i] {
		case '\\':
			i++ // Apache escapes quotation marks like this
		case '"':
			return i
		}
	}
	return -1
}
