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

// A converter converts the library's nodes to Nodes. It resolves aliases and merge keys, and reports duplicate keys.
type converter struct {
	Problems
	expanding map[*yaml.Node]bool // the anchors around the current node
	expanded  int                 // how many nodes were made for aliases
	tooMany   bool                // expanded has exceeded maxExpanded
	depth     int
}

// convert converts n, stores the result in the node to, whose parent and step are set, and returns to.
func (c *converter) convert(n *yaml.Node, to *Node) *Node {
	if len(c.expanding) > 0 {
		c.expanded++
	}
	to.Line, to.Column, to.Text = n.Line, n.Column, n.Value
	if c.depth++; c.depth > maxDepth {
		c.AddAt(Place{Line: n.Line, Column: n.Column}, "values are nested more than %d deep", maxDepth)
		c.depth--
		return to
	}
	defer func() { c.depth-- }()
	if n.Kind != yaml.AliasNode && n.Style&yaml.TaggedStyle != 0 {
		c.Add(to, tagRefused, escaped(n.Tag))
	}
	switch n.Kind {
	case yaml.AliasNode:
		return c.alias(n, to)
	case yaml.MappingNode:
		to.Kind = Mapping
		c.mapping(n, to)
	case yaml.SequenceNode:
		to.Kind = List
		for i, item := range n.Content {
			to.Items = append(to.Items, c.convert(item, &Node{parent: to, step: fmt.Sprintf("[%d]", i)}))
		}
	default:
		to.Kind = scalarKind(n)
	}
	return to
}

const tagRefused = "the tag %s cannot be used, leave it out"

// escaped returns a tag for a message, on one line: %0D in a tag stands for a line break.
func escaped(tag string) string {
	quoted := strconv.Quote(Beginning(tag))
	return quoted[1 : len(quoted)-1]
}

// scalarKind returns the kind of a scalar by the tag that the library has resolved.
func scalarKind(n *yaml.Node) Kind {
	switch n.Tag {
	case "!!null":
		return Null
	case "!!int":
		return Integer
	case "!!float":
		if strings.Trim(n.Value, "+-0123456789") == "" { // too large for the library, or -0
			return Integer
		}
		return Decimal
	case "!!bool":
		return Boolean
	default:
		if n.Style&(yaml.SingleQuotedStyle|yaml.DoubleQuotedStyle|yaml.LiteralStyle|yaml.FoldedStyle) == 0 && number.MatchString(n.Value) {
			return Decimal // too large for the library, such as 1e999; other readers take it for a number
		}
		return Text
	}
}

// number matches what is a number in YAML and in JSON.
var number = regexp.MustCompile(`^[-+]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][-+]?[0-9]+)?$`)

// alias stores the value of the anchor that n names in the node to.
func (c *converter) alias(n *yaml.Node, to *Node) *Node {
	switch {
	case c.expanding[n.Alias]:
		c.Add(to, "the alias *%s is inside its own anchor", Beginning(n.Value))
		return to
	case c.expanded > maxExpanded:
		if !c.tooMany {
			c.Add(to, "aliases stand for more than %d values", maxExpanded)
		}
		c.tooMany = true
		return to
	}
	c.expanding[n.Alias] = true
	defer delete(c.expanding, n.Alias)
	return c.convert(n.Alias, to)
}

// mapping stores the entries of n in the node to. Merged entries come last. If n has a key itself, a merged entry with
// that key is left out.
func (c *converter) mapping(n *yaml.Node, to *Node) {
	var merged []*yaml.Node
	first := make(map[string]*Node)
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		if key.Tag == "!!merge" {
			merged = append(merged, value)
			continue
		}
		k := c.key(key, to)
		if k == nil {
			continue
		}
		v := c.convert(value, new(Node).placeUnder(to, k.Text))
		if before := first[k.Text]; before != nil {
			c.Add(k, "the key %s is there twice, first in line %d", Quoted(k.Text), before.Line)
			continue
		}
		first[k.Text] = k
		to.Entries = append(to.Entries, Entry{k, v})
	}
	for _, m := range merged {
		c.merge(m, to, first)
	}
}

// key returns nil and adds a problem if n cannot be a key.
func (c *converter) key(n *yaml.Node, of *Node) *Node {
	k := &Node{Line: n.Line, Column: n.Column, Kind: Text, Text: n.Value, parent: of}
	switch {
	case n.Kind != yaml.ScalarNode:
		c.Add(k, "a key must be text")
	case n.Style&yaml.TaggedStyle != 0:
		c.Add(k, tagRefused, escaped(n.Tag))
	case n.Value == "":
		c.Add(k, "a key is missing")
	default:
		return k
	}
	return nil
}

// merge adds the entries of the value of a key "<<", which is a mapping or a list of mappings.
func (c *converter) merge(n *yaml.Node, to *Node, first map[string]*Node) {
	sources := []*Node{c.convert(n, &Node{parent: to})}
	if sources[0].Kind == List {
		sources = sources[0].Items
	}
	for _, s := range sources {
		s.step = "" // the path of a merged entry does not show the position of s in the list
		if s.Kind != Mapping {
			c.Add(s, "<< takes a mapping or a list of mappings, found %v", s)
			continue
		}
		for _, e := range s.Entries {
			if first[e.Key.Text] == nil {
				first[e.Key.Text] = e.Key
				to.Entries = append(to.Entries, e)
			}
		}
	}
}
