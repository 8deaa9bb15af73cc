package simulate

import (
	"net/netip"
	"strings"
)

// combinedFields are the fields of the combined log format, by the names that nginx has for them.
var combinedFields = [...]string{
	"remote_addr", "remote_user", "time_local", "request", "status", "body_bytes_sent", "http_referer", "http_user_agent",
}

// A combinedLine is a line of the combined log format. The common log format has no referer and no user agent. Apache can
// put the virtual host before both. Fields that are added at the end are ignored.
type combinedLine struct{ values [len(combinedFields)]string }

// parse sets the values.
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
