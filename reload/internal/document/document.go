// Package document reads a YAML or JSON file into nodes that know their place, and makes the texts of messages about
// them. It knows nothing of what the file means.
//
//   - document.go: Parse checks what would be too much for the YAML library, calls it, and makes a tree of Nodes: without
//     aliases, merge keys and duplicate keys.
//   - node.go: Node, and the way to it.
//   - problem.go: Problems and their places, how their texts quote the file, and "did you mean".
package document

import (
	"bytes"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v4"
)

// MaxSize is the size of a file in bytes, if the program does not set another bound: that of a Kubernetes ConfigMap.
const MaxSize = 1 << 20

// Parse reads YAML, or JSON, which is read as YAML. A document has at most maxSize bytes. The root of an empty document is an empty
// mapping. The root is nil if the document must not be decoded because of the problems.
func Parse(data []byte, maxSize int) (root *Node, found Problems) {
	data = bytes.TrimPrefix(data, []byte("\ufeff"))
	if at, problem := unreadable(data, maxSize); problem != "" {
		found.Add(at, "%s", problem)
		return nil, found
	}
	var documents []yaml.Node
	// The library would stop at the first duplicate key; the reader reports them all.
	err := yaml.Load(data, &documents, yaml.WithAllDocuments(), yaml.WithUniqueKeys(false))
	if err != nil {
		at, message := syntaxError(data, err)
		found.Add(at, "%s", message)
		return nil, found
	}
	if len(documents) == 0 || len(documents[0].Content) == 0 {
		return &Node{Tag: Mapping, Line: 1, Column: 1}, nil
	}
	if len(documents) > 1 {
		second := documents[1]
		found.Add(Place{Line: second.Line, Column: second.Column}, "a second document begins here, a file has only one")
	}
	r := reader{Problems: found, inside: make(map[*yaml.Node]bool)}
	root = &Node{}
	r.read(root, documents[0].Content[0], 1)
	if r.aliased > maxAliased {
		root = nil // otherwise, the values that were left out would be reported as missing
	}
	return root, r.Problems
}

// unreadable finds the first problem that the library would not report, or would report without a position. The library
// takes some characters for line breaks although editors do not. It has no bound for the size of a file, and compares
// each %TAG directive with all %TAG directives before it.
func unreadable(data []byte, maxSize int) (at Place, problem string) {
	at = Place{Line: 1, Column: 1}
	if len(data) > maxSize {
		return at, fmt.Sprintf("the file has %d bytes, must have at most %d", len(data), maxSize)
	}
	for len(data) > 0 {
		r, size := utf8.DecodeRune(data)
		switch {
		case at.Column == 1 && bytes.HasPrefix(data, []byte("%TAG")):
			return at, "a %TAG directive cannot be used, leave it out"
		case r == utf8.RuneError && size == 1:
			return at, fmt.Sprintf("the byte 0x%02x is not UTF-8", data[0])
		case r == '\n', r == '\r' && !bytes.HasPrefix(data, []byte("\r\n")):
			at.Line, at.Column = at.Line+1, 0
		case r != '\t' && r != '\r' && !printable(r):
			return at, fmt.Sprintf("the character %U cannot be in a file", r)
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

// maxAliased bounds the number of values that all aliases stand for: ten lines with aliases of aliases can stand for billions.
const maxAliased = 100_000

// maxDepth bounds how deep values are nested. Valid files need about ten levels.
const maxDepth = 100

// A reader makes Nodes of those of the library. An alias becomes what it stands for.
type reader struct {
	Problems
	inside  map[*yaml.Node]bool // the anchors around the current node
	aliases int                 // how many aliases are around it
	aliased int                 // how many values the aliases so far stand for
}

// read sets n to what is in y, which stands that deep. It leaves out what it refuses.
func (r *reader) read(n *Node, y *yaml.Node, depth int) {
	n.Tag, n.Line, n.Column = Null, y.Line, y.Column
	if r.aliases > 0 {
		r.aliased++
	}
	switch {
	case r.aliased > maxAliased:
	case depth > maxDepth:
		r.Add(Place{Line: n.Line, Column: n.Column}, "values are nested more than %d deep", maxDepth)
	case r.inside[y.Alias]:
		r.Add(n.Place(), "the alias *%s is inside its own anchor", Beginning(y.Value))
	case y.Kind == yaml.AliasNode:
		alias := *n
		r.aliases++
		r.read(n, y.Alias, depth)
		r.aliases--
		if r.aliased > maxAliased && r.aliases == 0 {
			r.Add(alias.Place(), "aliases stand for more than %d values", maxAliased)
		}
	default:
		if y.Anchor != "" {
			r.inside[y] = true
			defer delete(r.inside, y)
		}
		if y.Style&yaml.TaggedStyle != 0 {
			r.Add(n.Place(), tagRefused, Quoted(y.Tag))
		}
		n.Tag, n.Value = kindOf(y), y.Value
		if n.Tag == Mapping {
			r.readMapping(n, y, depth)
			return
		}
		for i, item := range y.Content {
			n.Content = append(n.Content, &Node{parent: n, index: i})
			r.read(n.Content[i], item, depth+1)
		}
	}
}

// readMapping sets the entries of n, each key once. Entries that << merges come last, unless the mapping has their key itself.
func (r *reader) readMapping(n *Node, y *yaml.Node, depth int) {
	entries := make(map[string]*yaml.Node) // the keys
	var merged []*Node
	for i := 0; i+1 < len(y.Content); i += 2 {
		e := &Node{Key: y.Content[i], parent: n}
		key := e.Key.Value
		before := entries[key]
		problem := ""
		switch {
		case e.Key.Tag == mergeKey:
			r.read(e, y.Content[i+1], depth+1)
			merged = append(merged, e)
			continue
		case e.Key.Kind != yaml.ScalarNode:
			problem = "a key must be text"
		case e.Key.Style&yaml.TaggedStyle != 0:
			problem = fmt.Sprintf(tagRefused, Quoted(e.Key.Tag))
		case key == "":
			problem = "a key is missing"
		case before != nil:
			problem = fmt.Sprintf("the key %s is there twice, first in line %d", Quoted(key), before.Line)
		}
		if problem != "" {
			r.Add(e.OfKey(), "%s", problem)
			continue
		}
		entries[key] = e.Key
		n.Content = append(n.Content, e)
		r.read(e, y.Content[i+1], depth+1)
	}
	for _, from := range merged {
		sources := []*Node{from}
		if from.Tag == List {
			sources = from.Content
		}
		for _, source := range sources {
			if source.Tag != Mapping {
				r.Add(source.Place(), "<< takes a mapping or a list of mappings, found %v", source)
				continue
			}
			for _, e := range source.Content {
				if entries[e.Key.Value] == nil {
					entries[e.Key.Value] = e.Key
					e.parent = n // so that its path does not show where it comes from
					n.Content = append(n.Content, e)
				}
			}
		}
	}
}

const tagRefused = "the tag %s cannot be used, leave it out"

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
