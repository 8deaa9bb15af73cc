package reload

import (
	"fmt"
	"strconv"
	"strings"
)

// A node is a value of the file and where it stands. Aliases and merge keys are
// resolved.
type node struct {
	kind         nodeKind
	line, column int
	text         string  // of a scalar, as it is written, without quotes
	items        []*node // of a list
	entries      []entry // of a mapping, in the order of the file, each key once
}

// An entry is a key of a mapping and its value.
type entry struct{ key, value *node }

type nodeKind uint8

const (
	null nodeKind = iota
	mapping
	list
	text
	integer // a number without a fraction, decimal or not
	decimal
	boolean
)

// get returns the value under a key, or nil.
func (n *node) get(key string) *node {
	for _, e := range n.entries {
		if e.key.text == key {
			return e.value
		}
	}
	return nil
}

// String says what the node is, for "found …".
func (n *node) String() string {
	switch n.kind {
	case mapping:
		return "a mapping"
	case list:
		return "a list"
	case text:
		return fmt.Sprintf("the text %s", shortened(n.text))
	case integer, decimal:
		return "the number " + beginning(n.text)
	case boolean:
		return beginning(n.text)
	default:
		return "nothing"
	}
}

// shown is a name as it is, or in quotes if a terminal would not show it so or if it is too long for a name.
func shown(name string) string {
	if len(name) > maxNameLength {
		return shortened(name)
	}
	if strings.ContainsFunc(name, func(r rune) bool { return !strconv.IsPrint(r) }) || name == "" {
		return strconv.Quote(name)
	}
	return name
}

// visible is text of several lines in which nothing controls the terminal.
func visible(text string) string {
	var b strings.Builder
	for _, r := range text {
		if r == '\n' || strconv.IsPrint(r) {
			b.WriteRune(r)
		} else {
			quoted := strconv.QuoteRune(r)
			b.WriteString(quoted[1 : len(quoted)-1])
		}
	}
	return b.String()
}

// mostShown is how many characters of a piece of the file a message shows.
const mostShown = 60

// shortened quotes text for a message that is to stay on one line.
func shortened(s string) string {
	if begins := beginning(s); begins != s {
		return strconv.Quote(strings.TrimSuffix(begins, "…")) + "…"
	}
	return strconv.Quote(s)
}

// beginning is text for a message, cut and with a … if it is long.
func beginning(s string) string {
	seen := 0
	for i := range s {
		if seen++; seen > mostShown {
			return s[:i] + "…"
		}
	}
	return s
}
