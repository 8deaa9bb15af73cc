// Package document reads a YAML or JSON file into nodes that know their place, and makes the texts of messages about
// them. It knows nothing of what the file means.
//
//   - document.go: Parse checks what would be too much for the YAML library, calls it, and checks its nodes: aliases, merge
//     keys, duplicate keys.
//   - node.go: Node, and the way to it.
//   - problem.go: Problems and their places, how their texts quote the file, and "did you mean".
package document

import (
	"bytes"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v4"
)

// The bounds of a file. Without the last two the YAML library takes a second and hundreds of megabytes for some files
// of 1 MiB.
const (
	MaxSize      = 1 << 20 // bytes, if the program does not set another bound: the size of a Kubernetes ConfigMap
	maxDocuments = 100     // lines that begin or end a document
	maxFlow      = 200_000 // the sum of the characters [ { and , in the file, for each MaxSize that it can have
)

// Parse reads YAML, or JSON, which is read as YAML. A document has at most maxSize bytes. The root is nil if the document
// is empty, or if the document must not be decoded because of the problems.
func Parse(data []byte, maxSize int) (root *Node, found Problems) {
	data = bytes.TrimPrefix(data, []byte("\ufeff"))
	if at, problem := unreadable(data, maxSize); problem != "" {
		found.AddAt(at, "%s", problem)
		return nil, found
	}
	var documents []yaml.Node
	// The library would stop at the first duplicate key; the converter reports them all.
	err := yaml.Load(data, &documents, yaml.WithAllDocuments(), yaml.WithUniqueKeys(false))
	if err != nil {
		at, message := syntaxError(data, err)
		found.AddAt(at, "%s", message)
		return nil, found
	}
	if len(documents) == 0 || len(documents[0].Content) == 0 {
		return nil, nil
	}
	if len(documents) > 1 {
		second := documents[1]
		found.AddAt(Place{Line: second.Line, Column: second.Column}, "a second document begins here, a file has only one")
	}
	c := checker{extents: make(map[*yaml.Node]extent), inside: make(map[*yaml.Node]bool)}
	root = &Node{Node: documents[0].Content[0]}
	c.check(root, 1)
	if c.tooMany {
		root = nil // otherwise, the values that were left out would be reported as missing
	}
	return root, append(found, c.Problems...)
}

// unreadable finds the first problem that the library would not report, or would report without a position. The library
// takes some characters for line breaks although editors do not. It has no bounds for the size of a file, and compares
// each %TAG directive with all %TAG directives before it.
func unreadable(data []byte, maxSize int) (at Place, problem string) {
	at = Place{Line: 1, Column: 1}
	if len(data) > maxSize {
		return at, fmt.Sprintf("the file has %d bytes, must have at most %d", len(data), maxSize)
	}
	documents, flow := 0, 0
	maxFlow := maxFlow * max(maxSize/MaxSize, 1)
	for len(data) > 0 {
		if at.Column == 1 {
			switch {
			case bytes.HasPrefix(data, []byte("%TAG")):
				return at, "a %TAG directive cannot be used, leave it out"
			case bytes.HasPrefix(data, []byte("---")), bytes.HasPrefix(data, []byte("...")):
				documents++
			}
		}
		r, size := utf8.DecodeRune(data)
		switch {
		case r == utf8.RuneError && size == 1:
			return at, fmt.Sprintf("the byte 0x%02x is not UTF-8", data[0])
		case r == '[', r == '{', r == ',':
			flow++
		case r == '\n', r == '\r' && !bytes.HasPrefix(data, []byte("\r\n")):
			at.Line, at.Column = at.Line+1, 0
		case r != '\t' && r != '\r' && !printable(r):
			return at, fmt.Sprintf("the character %U cannot be in a file", r)
		}
		switch {
		case documents > maxDocuments:
			return at, fmt.Sprintf("more than %d lines begin or end a document, a file has only one", maxDocuments)
		case flow > maxFlow:
			return Place{Line: at.Line, Column: 1}, fmt.Sprintf("there are more than %d of the characters [ { and ,", maxFlow)
		}
		at.Column++
		data = data[size:]
	}
	return at, ""
}

// printable reports whether the character can be in a YAML file and is no line break. It cannot be a control character, a
// line break to the library that is none to editors, a byte order mark or a noncharacter.
func printable(r rune) bool {
	return r >= ' ' && (r < 0x7f || r >= 0xa0) && !strings.ContainsRune("\u2028\u2029\ufeff\ufffe\uffff", r)
}

// syntaxError returns the position and the text of an error of the library.
func syntaxError(data []byte, err error) (at Place, message string) {
	at = Place{Line: 1, Column: 1}
	load, ok := errors.AsType[*yaml.LoadError](err)
	if !ok {
		return at, "cannot be read as YAML: " + err.Error()
	}
	if load.Mark.Line > 0 {
		at.Line, at.Column = load.Mark.Line, max(load.Mark.Column, 1)
	}
	if tabAt(data, at) {
		return at, "a tab cannot indent, use spaces"
	}
	message = load.Message
	if load.ContextMsg != "" {
		message = load.ContextMsg
		if c := load.ContextMark; c.Line > 0 && c != load.Mark {
			message += fmt.Sprintf(" that begins at %d:%d", c.Line, c.Column)
		}
		message += ": " + load.Message
	}
	if load.Message == "did not find expected key" {
		message += "; all keys of a mapping must be indented by the same number of spaces"
	}
	return at, message
}

// tabAt reports whether there is a tab at that place, and nothing but blanks before it in the line.
func tabAt(data []byte, at Place) bool {
	ends := strings.NewReplacer("\r\n", "\n", "\r", "\n")
	lines := strings.SplitN(ends.Replace(string(data)), "\n", at.Line+1)
	if at.Line > len(lines) {
		return false
	}
	line := []rune(lines[at.Line-1])
	if at.Column > len(line) || line[at.Column-1] != '\t' {
		return false
	}
	return strings.TrimSpace(string(line[:at.Column])) == ""
}

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
