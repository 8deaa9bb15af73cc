package document

import (
	"fmt"
	"iter"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v4"
)

// A Node is a node of the YAML library and the way to it. Its Tag is one of the kinds below.
type Node struct {
	*yaml.Node
	Key *yaml.Node // of an entry of a mapping; nil: it is none

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

// Children returns the items of a list, or the entries of a mapping in the order of the file, each key once: merged
// entries come last, unless the mapping has their key itself.
func (n *Node) Children() iter.Seq[*Node] {
	return func(yield func(*Node) bool) {
		if n.Tag != Mapping {
			for i, item := range n.Content {
				if !yield(&Node{Node: target(item), parent: n, index: i}) {
					return
				}
			}
			return
		}
		merges := false
		for i := 0; i+1 < len(n.Content); i += 2 {
			if n.Content[i].Tag == mergeKey {
				merges = true
			} else if !yield(n.entry(i)) {
				return
			}
		}
		if merges {
			n.merged(yield)
		}
	}
}

func (n *Node) entry(i int) *Node {
	return &Node{Node: target(n.Content[i+1]), Key: n.Content[i], parent: n}
}

// merged yields the entries that the keys << merge into a mapping. Their paths do not show where they come from.
func (n *Node) merged(yield func(*Node) bool) {
	seen := make(map[string]bool)
	var sources []*yaml.Node
	for i := 0; i+1 < len(n.Content); i += 2 {
		switch value := target(n.Content[i+1]); {
		case n.Content[i].Tag != mergeKey:
			seen[n.Content[i].Value] = true
		case value.Tag == List:
			sources = append(sources, value.Content...)
		default:
			sources = append(sources, value)
		}
	}
	for _, source := range sources {
		in := *n
		if in.Node = target(source); in.Tag != Mapping {
			continue
		}
		for e := range in.Children() {
			if !seen[e.Key.Value] {
				seen[e.Key.Value] = true
				if !yield(e) {
					return
				}
			}
		}
	}
}

// target returns what an alias stands for, or n itself.
func target(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.AliasNode {
		return n.Alias
	}
	return n
}

// Get returns the entry of a mapping with that key, or the item of a list with that number, or nil.
func (n *Node) Get(key string) *Node {
	merges := n.Tag != Mapping
	for i := 0; i+1 < len(n.Content) && n.Tag == Mapping; i += 2 { // most mappings have no key <<
		if n.Content[i].Tag == mergeKey {
			merges = true
		} else if n.Content[i].Value == key {
			return n.entry(i)
		}
	}
	if merges {
		for e := range n.Children() {
			if e.Key != nil && e.Key.Value == key || e.Key == nil && strconv.Itoa(e.index) == key {
				return e
			}
		}
	}
	return nil
}

// Place returns where the value stands.
func (n *Node) Place() Place { return Place{n.Line, n.Column, n.path()} }

// An Entry is an entry of a mapping whose place is that of its key, with the path of the value.
type Entry struct{ *Node }

// Place returns where the key stands.
func (e Entry) Place() Place { return Place{e.Key.Line, e.Key.Column, e.path()} }

// A Key is a key that should not be there. Its place has the path of the mapping.
type Key struct{ *Node }

// Place returns where the key stands.
func (k Key) Place() Place { return Place{k.Key.Line, k.Key.Column, k.parent.path()} }

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
