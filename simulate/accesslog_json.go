package simulate

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
)

// jsonFields reads a few fields of objects, and goes over everything else without decoding it.
type jsonFields struct {
	names  []string    // paths with dots, at most maxFields
	values []jsonValue // of the last object, by the indexes of names
	whole  paths       // all names
	data   []byte
	at     int
}

// A jsonValue is a text, a number, true or false. found is false if there is no value, or another one.
type jsonValue struct {
	text  string
	found bool
}

const (
	maxFields = 32
	maxDepth  = 200
)

// errJSON is the error of a line that is not an object.
const errJSON = badLineError("the line is not a JSON object, or not the whole of one")

// paths are what is left of the names, below the value that is being read. An empty one does not lead there.
type paths [maxFields]string

// add adds names, and returns their indexes.
func (f *jsonFields) add(names ...string) []int {
	var indexes []int
	for _, name := range names {
		i := slices.Index(f.names, name)
		if i < 0 {
			i = len(f.names)
			f.names = append(f.names, name)
		}
		indexes = append(indexes, i)
	}
	f.values = make([]jsonValue, len(f.names))
	copy(f.whole[:], f.names)
	return indexes
}

// first returns the first value that the object has of the fields with these indexes.
func (f *jsonFields) first(indexes []int) (string, bool) {
	for _, i := range indexes {
		if f.values[i].found {
			return f.values[i].text, true
		}
	}
	return "", false
}

// parse reads an object and sets the values.
func (f *jsonFields) parse(data []byte) error {
	clear(f.values)
	f.data, f.at = data, 0
	if f.peek() != '{' || !f.object(&f.whole, 0) || f.peek() != 0 || f.at < len(data) {
		return errJSON
	}
	return nil
}

// peek returns the next byte that is not a space, or 0 at the end.
func (f *jsonFields) peek() byte {
	for ; f.at < len(f.data); f.at++ {
		switch b := f.data[f.at]; b {
		case ' ', '\t', '\r', '\n':
		default:
			return b
		}
	}
	return 0
}

// object goes over an object and reports whether it is complete. Fields that p leads to are set.
func (f *jsonFields) object(p *paths, depth int) bool {
	f.at++ // the brace
	if f.peek() == '}' {
		f.at++
		return true
	}
	for {
		if f.peek() != '"' {
			return false
		}
		key, ok := f.text(p != nil)
		if !ok || f.peek() != ':' {
			return false
		}
		f.at++
		targets, below := f.below(p, key)
		if !f.value(targets, below, depth+1) {
			return false
		}
		switch f.peek() {
		case ',':
			f.at++
		case '}':
			f.at++
			return true
		default:
			return false
		}
	}
}

// below returns the set of the paths that end at the key, and what is left of the paths that go on from there. If none
// does, it returns nil.
func (f *jsonFields) below(p *paths, key []byte) (targets uint32, below *paths) {
	if p == nil {
		return 0, nil
	}
	n := len(key)
	for i, path := range p[:len(f.names)] {
		if path == "" || len(path) < n || path[:n] != string(key) {
			continue
		}
		switch rest := path[n:]; {
		case rest == "":
			targets |= 1 << i
		case rest[0] == '.' && len(rest) > 1:
			if below == nil {
				below = new(paths)
			}
			below[i] = rest[1:]
		}
	}
	return targets, below
}

// value goes over a value, which the targets are set to.
func (f *jsonFields) value(targets uint32, p *paths, depth int) bool {
	if depth > maxDepth {
		return false
	}
	start := f.peek()
	begin := f.at
	switch start {
	case '{':
		f.set(targets, jsonValue{})
		return f.object(p, depth)
	case '[':
		f.set(targets, jsonValue{})
		return f.array(targets, p, depth)
	case '"':
		text, ok := f.text(targets != 0)
		if targets != 0 {
			f.set(targets, jsonValue{string(text), ok})
		}
		return ok
	}
	for f.at < len(f.data) && strings.IndexByte(" \t\r\n,]}", f.data[f.at]) < 0 {
		f.at++
	}
	word := f.data[begin:f.at]
	switch {
	case string(word) == "null":
		f.set(targets, jsonValue{found: true}) // there is the field, and it has nothing
		return true
	case string(word) == "true", string(word) == "false":
	case len(word) == 0 || len(bytes.Trim(word, "+-.0123456789eE")) > 0 || targets != 0 && !json.Valid(word):
		return false
	}
	if targets != 0 {
		f.set(targets, jsonValue{string(word), true})
	}
	return true
}

// array goes over an array. Its first element counts as the value.
func (f *jsonFields) array(targets uint32, p *paths, depth int) bool {
	f.at++ // the bracket
	if f.peek() == ']' {
		f.at++
		return true
	}
	for {
		if !f.value(targets, p, depth+1) {
			return false
		}
		targets, p = 0, nil
		switch f.peek() {
		case ',':
			f.at++
		case ']':
			f.at++
			return true
		default:
			return false
		}
	}
}

// text goes over a text and, if it is wanted, returns it. It is valid until the line is not any more.
func (f *jsonFields) text(wanted bool) ([]byte, bool) {
	begin, escaped := f.at, false
	for f.at++; f.at < len(f.data); f.at++ {
		switch b := f.data[f.at]; {
		case b == '\\':
			f.at++
			escaped = true
		case b < ' ':
			return nil, false
		case b == '"':
			f.at++
			if !wanted || !escaped {
				return f.data[begin+1 : f.at-1], true
			}
			var text string
			err := json.Unmarshal(f.data[begin:f.at], &text)
			return []byte(text), err == nil
		}
	}
	return nil, false
}

// set sets the values of the targets.
func (f *jsonFields) set(targets uint32, v jsonValue) {
	for i := 0; targets != 0; i, targets = i+1, targets>>1 {
		if targets&1 != 0 {
			f.values[i] = v
		}
	}
}
