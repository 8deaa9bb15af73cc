package document

import (
	"fmt"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v4"
)

// A Node is a value in a document, and the way to it. Its Tag is one of the kinds below.
type Node struct {
	Tag, Value   string
	Line, Column int
	Key          *yaml.Node // of an entry of a mapping; nil: it is none
	Content      []*Node    // the items of a list, or the entries of a mapping, each key once

	parent *Node // the mapping or list that the node stands in; nil: none
	index  int   // in a list
}

// The kinds of nodes. An Integer is a number without a fraction, in decimal digits or not; a Decimal is any other number.
const (
	Null    = "!!null"
	Mapping = "!!map"
	List    = "!!seq"
	Text    = "!!str"
	Integer = "!!int"
	Decimal = "!!float"
	Boolean = "!!bool"
)

const mergeKey = "!!merge" // the tag of the key <<

// Get returns the entry of a mapping with that key, or the item of a list with that number, or nil. n can be nil.
func (n *Node) Get(key string) *Node {
	if n == nil {
		return nil
	}
	for _, e := range n.Content {
		if e.Key != nil && e.Key.Value == key || e.Key == nil && strconv.Itoa(e.index) == key {
			return e
		}
	}
	return nil
}

// Keys returns the keys of a mapping, in the order of the file.
func (n *Node) Keys() (all []string) {
	for _, e := range n.Content {
		if e.Key != nil {
			all = append(all, e.Key.Value)
		}
	}
	return all
}

// Place returns where the value stands.
func (n *Node) Place() Place { return Place{n.Line, n.Column, n.path()} }

// AtKey returns where the key of an entry stands, with the path of the value.
func (n *Node) AtKey() Place { return Place{n.Key.Line, n.Key.Column, n.path()} }

// OfKey returns where a key stands that should not be there, with the path of the mapping.
func (n *Node) OfKey() Place { return Place{n.Key.Line, n.Key.Column, n.parent.path()} }

func (n *Node) path() string {
	steps := ""
	for at := n; at.parent != nil; at = at.parent {
		steps = at.step() + steps
	}
	return strings.TrimPrefix(steps, ".")
}

// step leads to n from the mapping or list around it.
func (n *Node) step() string {
	switch {
	case n.Key == nil:
		return "[" + strconv.Itoa(n.index) + "]"
	case len(n.Key.Value) > MaxName:
		return "[" + Quoted(n.Key.Value) + "]"
	case !PlainKey(n.Key.Value):
		return fmt.Sprintf("[%q]", n.Key.Value)
	default:
		return "." + n.Key.Value
	}
}

// PlainKey reports whether a key needs no quotes in a path.
func PlainKey(key string) bool {
	return key != "" && !strings.ContainsFunc(key, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '_' && r != '-'
	})
}

// String describes the node for messages, such as "the number 5" in "must be text, found the number 5".
func (n *Node) String() string {
	switch n.Tag {
	case Mapping:
		return "a mapping"
	case List:
		return "a list"
	case Text:
		return "the text " + Quoted(n.Value)
	case Integer, Decimal:
		return "the number " + Beginning(n.Value)
	case Boolean:
		return Beginning(n.Value)
	default:
		return "nothing"
	}
}
