package document

import "fmt"

// A Node is a value of the file and its position. Aliases and merge keys are resolved.
type Node struct {
	Kind         Kind
	Line, Column int
	Text         string  // of a scalar, as it is written, without quotes
	Items        []*Node // of a list
	Entries      []Entry // of a mapping, in the order of the file, each key once
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

// Get returns the value under a key, or nil.
func (n *Node) Get(key string) *Node {
	for _, e := range n.Entries {
		if e.Key.Text == key {
			return e.Value
		}
	}
	return nil
}

// String describes the node for messages, such as "the number 5" in "must be text, found the number 5".
func (n *Node) String() string {
	switch n.Kind {
	case Mapping:
		return "a mapping"
	case List:
		return "a list"
	case Text:
		return fmt.Sprintf("the text %s", Quoted(n.Text))
	case Integer, Decimal:
		return "the number " + Beginning(n.Text)
	case Boolean:
		return Beginning(n.Text)
	default:
		return "nothing"
	}
}

// Without returns the mapping without the entries for which which returns true; if there are none, n itself.
func (n *Node) Without(which func(Entry) bool) *Node {
	var kept []Entry
	for _, e := range n.Entries {
		if !which(e) {
			kept = append(kept, e)
		}
	}
	if len(kept) == len(n.Entries) {
		return n
	}
	rest := *n
	rest.Entries = kept
	return &rest
}
