package document

import (
	"fmt"
	"strings"
)

// A Node is a value or a key of the file. Aliases and merge keys are resolved.
type Node struct {
	Kind         Kind
	Line, Column int
	Text         string  // of a scalar, as it is written, without quotes
	Items        []*Node // of a list
	Entries      []Entry // of a mapping, in the order of the file, each key once

	parent *Node  // the mapping or list that the node stands in; nil: none
	step   string // leads from parent to the node: .key, ["a key"] or [1]; "" for a key
}

// An Entry is a key of a mapping and its value.
type Entry struct{ Key, Value *Node }

// A Kind is the kind of a [Node].
type Kind uint8

// The kinds of nodes. An Integer is a number without a fraction, in decimal digits or not; a Decimal is any other
// number.
const (
	Null Kind = iota
	Mapping
	List
	Text
	Integer
	Decimal
	Boolean
)

// Place returns where the node stands. A key stands at the path of its mapping.
func (n *Node) Place() Place {
	steps := ""
	for at := n; at != nil; at = at.parent {
		steps = at.step + steps
	}
	return Place{Line: n.Line, Column: n.Column, Path: strings.TrimPrefix(steps, ".")}
}

// Place returns the position of the key and the path of the value.
func (e Entry) Place() Place {
	at := e.Value.Place()
	at.Line, at.Column = e.Key.Line, e.Key.Column
	return at
}

// placeUnder sets the place of n to that key of a mapping, and returns n. It does not add n to the mapping's entries.
func (n *Node) placeUnder(of *Node, key string) *Node {
	n.parent = of
	switch {
	case len(key) > MaxName:
		n.step = "[" + Quoted(key) + "]"
	case !PlainKey(key):
		n.step = fmt.Sprintf("[%q]", key)
	default:
		n.step = "." + key
	}
	return n
}

// PlainKey reports whether a key needs no quotes in a path.
func PlainKey(key string) bool {
	for _, r := range key {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '_', r == '-':
		default:
			return false
		}
	}
	return key != ""
}

// Get returns the value under a key, or nil.
func (n *Node) Get(key string) *Node {
	if e := n.Entry(key); e != nil {
		return e.Value
	}
	return nil
}

// Entry returns the entry with that key, or nil.
func (n *Node) Entry(key string) *Entry {
	for i := range n.Entries {
		if n.Entries[i].Key.Text == key {
			return &n.Entries[i]
		}
	}
	return nil
}

// Without returns the mapping without the entries for which leaveOut returns true.
func (n *Node) Without(leaveOut func(Entry) bool) *Node {
	rest := *n
	rest.Entries = nil
	for _, e := range n.Entries {
		if !leaveOut(e) {
			rest.Entries = append(rest.Entries, e)
		}
	}
	return &rest
}

// String describes the node for messages, such as "the number 5" in "must be text, found the number 5".
func (n *Node) String() string {
	switch n.Kind {
	case Mapping:
		return "a mapping"
	case List:
		return "a list"
	case Text:
		return "the text " + Quoted(n.Text)
	case Integer, Decimal:
		return "the number " + Beginning(n.Text)
	case Boolean:
		return Beginning(n.Text)
	default:
		return "nothing"
	}
}
