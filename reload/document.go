package reload

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v4"
)

// maxSize is how large a file may be. A Kubernetes ConfigMap holds as much.
const maxSize = 1 << 20

// parseDocument reads YAML, and JSON as the part of YAML that it is. It is all
// that knows the YAML library. The node is nil for an empty document, and if there
// are problems that leave nothing to look at.
func parseDocument(data []byte) (root *node, found problems) {
	data = bytes.TrimPrefix(data, []byte("\ufeff"))
	if at, problem := unreadable(data); problem != "" {
		found.add(at, "", "%s", problem)
		return nil, found
	}
	if at, problem := excessive(data); problem != "" {
		found.add(at, "", "%s", problem)
		return nil, found
	}
	var documents []yaml.Node
	// Duplicate keys are looked for further down, to find them all.
	err := yaml.Load(data, &documents, yaml.WithAllDocuments(), yaml.WithUniqueKeys(false))
	if err != nil {
		at, message := syntaxError(data, err)
		found.add(at, "", "%s", message)
		return nil, found
	}
	if len(documents) == 0 || len(documents[0].Content) == 0 {
		return nil, nil
	}
	if len(documents) > 1 {
		second := documents[1]
		found.add(&node{line: second.Line, column: second.Column}, "", "a second document begins here, a file has only one")
	}
	c := converter{expanding: make(map[*yaml.Node]bool)}
	root = c.convert(documents[0].Content[0], "")
	if c.tooMany {
		root = nil // what is left out would be missed
	}
	return root, append(found, c.problems...)
}

// unreadable finds what the library rejects without saying where, and what it takes
// for the end of a line as no editor does.
func unreadable(data []byte) (at *node, problem string) {
	at = &node{line: 1, column: 1}
	if len(data) > maxSize {
		return at, fmt.Sprintf("the file has %d bytes, must have at most %d", len(data), maxSize)
	}
	for len(data) > 0 {
		r, size := utf8.DecodeRune(data)
		switch {
		case r == utf8.RuneError && size == 1:
			return at, fmt.Sprintf("the byte 0x%02x is not UTF-8", data[0])
		case r == '\n', r == '\r' && !bytes.HasPrefix(data, []byte("\r\n")):
			at.line, at.column = at.line+1, 0
		case r != '\t' && r != '\r' && !printable(r):
			return at, fmt.Sprintf("the character %U cannot be in a file", r)
		}
		at.column++
		data = data[size:]
	}
	return at, ""
}

// The bounds of what the library is given to read. It takes a second and hundreds of megabytes for what one MiB can
// hold without them.
const (
	maxDocuments = 100     // lines that begin or end one
	maxFlow      = 200_000 // the characters [ { and , in all: a list of numbers has one for each
)

// excessive finds what would take the library long. It compares each %TAG directive with all before it, so they
// are not read at all: tags cannot be used anyway.
func excessive(data []byte) (at *node, problem string) {
	at = &node{column: 1}
	documents, flow := 0, 0
	for len(data) > 0 {
		line, rest := data, []byte(nil)
		if end := bytes.IndexAny(data, "\r\n"); end >= 0 {
			line, rest = data[:end], data[end+1:]
			if data[end] == '\r' {
				rest = bytes.TrimPrefix(rest, []byte("\n"))
			}
		}
		data = rest
		at.line++
		switch {
		case bytes.HasPrefix(line, []byte("%TAG")):
			return at, "a %TAG directive cannot be used, leave it out"
		case bytes.HasPrefix(line, []byte("---")), bytes.HasPrefix(line, []byte("...")):
			documents++
		}
		flow += bytes.Count(line, []byte("[")) + bytes.Count(line, []byte("{")) + bytes.Count(line, []byte(","))
		switch {
		case documents > maxDocuments:
			return at, fmt.Sprintf("more than %d lines begin or end a document, a file has only one", maxDocuments)
		case flow > maxFlow:
			return at, fmt.Sprintf("there are more than %d of the characters [ { and ,", maxFlow)
		}
	}
	return at, ""
}

// printable tells whether YAML has the character and takes it for no line break.
func printable(r rune) bool {
	switch {
	case r < ' ', r >= 0x7f && r < 0xa0: // control characters
		return false
	case r == '\u2028', r == '\u2029': // line breaks to some
		return false
	case r == '\ufeff', r == '\ufffe', r == '\uffff': // no characters
		return false
	default:
		return true
	}
}

// syntaxError says where the error of the library is and what it means.
func syntaxError(data []byte, err error) (at *node, message string) {
	at = &node{line: 1, column: 1}
	load, ok := errors.AsType[*yaml.LoadError](err)
	if !ok {
		return at, "cannot be read as YAML: " + err.Error()
	}
	if load.Mark.Line > 0 {
		at.line, at.column = load.Mark.Line, max(load.Mark.Column, 1)
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
	return at, message
}

// tabAt tells whether there is a tab, with nothing but blanks before it.
func tabAt(data []byte, at *node) bool {
	ends := strings.NewReplacer("\r\n", "\n", "\r", "\n")
	lines := strings.SplitN(ends.Replace(string(data)), "\n", at.line+1)
	if at.line > len(lines) {
		return false
	}
	line := []rune(lines[at.line-1])
	if at.column > len(line) || line[at.column-1] != '\t' {
		return false
	}
	return strings.TrimSpace(string(line[:at.column])) == ""
}
