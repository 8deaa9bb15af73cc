package reload

import (
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v4"
)

// maxExpanded bounds how many values aliases may stand for in all: ten lines can
// stand for billions.
const maxExpanded = 100_000

// maxDepth bounds how deep values may be nested. What a file can say takes ten.
const maxDepth = 100

// A converter makes nodes of the library's, without aliases, merge keys and
// duplicate keys.
type converter struct {
	problems
	expanding map[*yaml.Node]bool // the anchors that we are inside of
	expanded  int                 // how many nodes came from aliases
	tooMany   bool
	depth     int
}

func (c *converter) convert(n *yaml.Node, path string) *node {
	if len(c.expanding) > 0 {
		c.expanded++
	}
	made := &node{line: n.Line, column: n.Column, text: n.Value}
	if c.depth++; c.depth > maxDepth {
		c.add(made, "", "values are nested more than %d deep", maxDepth)
		c.depth--
		return made
	}
	defer func() { c.depth-- }()
	if n.Kind != yaml.AliasNode && n.Style&yaml.TaggedStyle != 0 {
		c.add(made, path, "the tag %s cannot be used, leave it out", escaped(n.Tag))
	}
	switch n.Kind {
	case yaml.AliasNode:
		return c.alias(n, made, path)
	case yaml.MappingNode:
		made.kind = mapping
		c.mapping(n, made, path)
	case yaml.SequenceNode:
		made.kind = list
		for i, item := range n.Content {
			made.items = append(made.items, c.convert(item, element(path, i)))
		}
	default:
		made.kind = scalarKind(n)
	}
	return made
}

// escaped keeps a tag, in which %0D stands for the end of a line, on one.
func escaped(tag string) string {
	quoted := strconv.Quote(beginning(tag))
	return quoted[1 : len(quoted)-1]
}

func scalarKind(n *yaml.Node) nodeKind {
	switch n.Tag {
	case "!!null":
		return null
	case "!!int":
		return integer
	case "!!float":
		if strings.Trim(n.Value, "+-0123456789") == "" { // too large for the library, or -0
			return integer
		}
		return decimal
	case "!!bool":
		return boolean
	default:
		if n.Style&(yaml.SingleQuotedStyle|yaml.DoubleQuotedStyle|yaml.LiteralStyle|yaml.FoldedStyle) == 0 && number.MatchString(n.Value) {
			return decimal // too large for the library, such as 1e999, and a number to other readers
		}
		return text
	}
}

// number is what is a number in YAML and in JSON.
var number = regexp.MustCompile(`^[-+]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][-+]?[0-9]+)?$`)

// alias returns what n stands for.
func (c *converter) alias(n *yaml.Node, made *node, path string) *node {
	switch {
	case c.expanding[n.Alias]:
		c.add(made, path, "the alias *%s stands inside of what it stands for", beginning(n.Value))
		return made
	case c.expanded > maxExpanded:
		if !c.tooMany {
			c.add(made, path, "aliases stand for more than %d values", maxExpanded)
		}
		c.tooMany = true
		return made
	}
	c.expanding[n.Alias] = true
	defer delete(c.expanding, n.Alias)
	return c.convert(n.Alias, path)
}

// mapping fills made with the entries of n. What is merged in comes last, and only
// where n itself does not have the key.
func (c *converter) mapping(n *yaml.Node, made *node, path string) {
	first := make(map[string]*node)
	var merged []*yaml.Node
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		if key.Tag == "!!merge" {
			merged = append(merged, value)
			continue
		}
		k := c.key(key, path)
		if k == nil {
			continue
		}
		v := c.convert(value, child(path, k.text))
		if before := first[k.text]; before != nil {
			c.add(k, path, "%s is there twice, first in line %d", shortened(k.text), before.line)
			continue
		}
		first[k.text] = k
		made.entries = append(made.entries, entry{k, v})
	}
	for _, m := range merged {
		c.merge(m, made, first, path)
	}
}

// key returns nil, after saying why, if n cannot be a key.
func (c *converter) key(n *yaml.Node, path string) *node {
	at := &node{line: n.Line, column: n.Column, kind: text, text: n.Value}
	switch {
	case n.Kind != yaml.ScalarNode:
		c.add(at, path, "a key must be text")
	case n.Style&yaml.TaggedStyle != 0:
		c.add(at, path, "the tag %s cannot be used, leave it out", escaped(n.Tag))
	case n.Value == "":
		c.add(at, path, "a key is missing")
	default:
		return at
	}
	return nil
}

// merge adds the entries of what stands under "<<", a mapping or a list of them.
func (c *converter) merge(n *yaml.Node, made *node, first map[string]*node, path string) {
	sources := []*node{c.convert(n, path)}
	if sources[0].kind == list {
		sources = sources[0].items
	}
	for _, s := range sources {
		if s.kind != mapping {
			c.add(s, path, "<< takes a mapping or a list of mappings, found %v", s)
			continue
		}
		for _, e := range s.entries {
			if first[e.key.text] == nil {
				first[e.key.text] = e.key
				made.entries = append(made.entries, e)
			}
		}
	}
}
