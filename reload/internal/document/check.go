package document

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v4"
)

// maxExpanded bounds the number of values that all aliases stand for: ten lines with aliases of aliases can stand for
// billions.
const maxExpanded = 100_000

// maxDepth bounds how deep values are nested. Valid files need about ten levels.
const maxDepth = 100

// A checker checks what the library does not, sets the Tag of each node to its kind, and removes what it refuses: a walk
// over the nodes then ends. It sees each node once, however many aliases lead to it.
type checker struct {
	Problems
	extents  map[*yaml.Node]extent // of the nodes with an anchor
	inside   map[*yaml.Node]bool   // the anchors around the current node
	expanded int                   // how many values the aliases so far stand for
	tooMany  bool                  // there are more than maxExpanded
}

// An extent is how much a node stands for.
type extent struct{ values, depth int }

// check checks n, which stands that deep.
func (c *checker) check(n *Node, depth int) (e extent) {
	if depth > maxDepth {
		c.AddAt(Place{Line: n.Line, Column: n.Column}, "values are nested more than %d deep", maxDepth)
		*n.Node = yaml.Node{Kind: yaml.ScalarNode, Tag: Null, Line: n.Line, Column: n.Column}
		return extent{1, 1}
	}
	if n.Anchor != "" {
		c.inside[n.Node] = true
		defer func() {
			delete(c.inside, n.Node)
			c.extents[n.Node] = e
		}()
	}
	if n.Style&yaml.TaggedStyle != 0 {
		c.Add(n, tagRefused, escaped(n.Tag))
	}
	e = extent{1, 1}
	n.Tag = kindOf(n.Node)
	if n.Tag == Mapping {
		c.checkKeys(n)
	}
	for i, item := range n.Content {
		var key *yaml.Node
		if n.Tag == Mapping {
			if i%2 == 0 {
				continue
			}
			key = n.Content[i-1]
		}
		inner := extent{1, 1}
		if item.Kind == yaml.ScalarNode && item.Anchor == "" && item.Style&yaml.TaggedStyle == 0 {
			item.Tag = kindOf(item)
		} else {
			inner = c.checkValue(&Node{item, key, n, i}, depth+1)
		}
		e.values, e.depth = min(e.values+inner.values, maxExpanded+1), max(e.depth, inner.depth+1)
		if key != nil && key.Tag == mergeKey {
			c.checkMerge(&Node{item, key, n, i})
		}
	}
	return e
}

// checkValue checks a value, which can be an alias.
func (c *checker) checkValue(n *Node, depth int) extent {
	if n.Kind != yaml.AliasNode {
		return c.check(n, depth)
	}
	e, known := c.extents[n.Alias]
	if !known && !c.inside[n.Alias] { // it was refused where it is written
		e = c.check(&Node{n.Alias, n.Key, n.parent, n.index}, depth)
	}
	c.expanded = min(c.expanded+e.values, maxExpanded+1)
	switch {
	case c.inside[n.Alias]:
		c.Add(n, "the alias *%s is inside its own anchor", Beginning(n.Value))
	case depth+e.depth > maxDepth+1:
		c.AddAt(Place{Line: n.Line, Column: n.Column}, "values are nested more than %d deep", maxDepth)
	case c.expanded > maxExpanded:
		if !c.tooMany {
			c.Add(n, "aliases stand for more than %d values", maxExpanded)
		}
		c.tooMany = true
	default:
		return e
	}
	*n.Node = yaml.Node{Kind: yaml.ScalarNode, Tag: Null, Line: n.Line, Column: n.Column}
	return extent{1, 1}
}

const tagRefused = "the tag %s cannot be used, leave it out"

// escaped returns a tag for a message, on one line: %0D in a tag stands for a line break.
func escaped(tag string) string {
	quoted := strconv.Quote(Beginning(tag))
	return quoted[1 : len(quoted)-1]
}

// kindOf returns the kind of a node by the tag that the library has resolved.
func kindOf(n *yaml.Node) string {
	switch {
	case n.Kind == yaml.MappingNode:
		return Mapping
	case n.Kind == yaml.SequenceNode:
		return List
	case n.Tag == Null, n.Tag == Integer, n.Tag == Boolean:
		return n.Tag
	case n.Tag == Decimal && strings.Trim(n.Value, "+-0123456789") == "": // too large for the library, or -0
		return Integer
	case n.Tag == Decimal:
		return Decimal
	case n.Style&(yaml.SingleQuotedStyle|yaml.DoubleQuotedStyle|yaml.LiteralStyle|yaml.FoldedStyle) == 0 && number.MatchString(n.Value):
		return Decimal // too large for the library, such as 1e999; other readers take it for a number
	default:
		return Text
	}
}

// number matches what is a number in YAML and in JSON.
var number = regexp.MustCompile(`^[-+]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][-+]?[0-9]+)?$`)

// checkKeys removes the entries of a mapping whose keys are refused.
func (c *checker) checkKeys(n *Node) {
	kept := n.Content[:0]
	first := make(map[string]*yaml.Node)
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		before := first[key.Value]
		problem := ""
		switch {
		case key.Tag == mergeKey:
		case key.Kind != yaml.ScalarNode:
			problem = "a key must be text"
		case key.Style&yaml.TaggedStyle != 0:
			problem = fmt.Sprintf(tagRefused, escaped(key.Tag))
		case key.Value == "":
			problem = "a key is missing"
		case before != nil:
			problem = fmt.Sprintf("the key %s is there twice, first in line %d", Quoted(key.Value), before.Line)
		default:
			first[key.Value] = key
		}
		if problem != "" {
			c.Add(Key{&Node{value, key, n, i}}, "%s", problem)
		} else {
			kept = append(kept, key, value)
		}
	}
	n.Content = kept
}

// checkMerge refuses what a key << cannot merge.
func (c *checker) checkMerge(n *Node) {
	merged := []*yaml.Node{n.Node}
	if value := target(n.Node); value.Tag == List {
		merged = value.Content
	}
	for _, m := range merged {
		if m = target(m); m.Tag != Mapping {
			in := *n.parent
			in.Node = m
			c.Add(&in, "<< takes a mapping or a list of mappings, found %v", &in)
		}
	}
}
