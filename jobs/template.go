package jobs

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/riverqueue/river/rivertype"
)

// A template is a text with places for fields of a job. The zero template is the empty text.
//
// Different values never make the same text: the first character of each text between two fields is escaped in all
// values, so the first such character is where the value ends.
type template struct {
	texts   []string // one more than fields
	fields  []field
	escaped string // % and the first characters of the texts between two fields
}

type field struct {
	metadata bool
	path     []string
}

func (f field) String() string {
	s := strings.Join(f.path, ".")
	if f.metadata {
		return "metadata:" + s
	}
	return s
}

var inBraces = regexp.MustCompile(`\{([^{}]*)\}`)

// parseTemplate returns the template of a text, or what is wrong with it.
func parseTemplate(text string) (t template, problem string) {
	t = template{texts: inBraces.Split(text, -1), escaped: "%"}
	key := strings.Join(t.texts, "")
	if strings.ContainsAny(key, "{}") {
		return template{}, "must have braces around the name of a field, and no others"
	}
	for i, name := range inBraces.FindAllStringSubmatch(text, -1) {
		f, ok := parseField(name[1])
		if !ok {
			return template{}, "must not have a field with an empty name"
		}
		t.fields = append(t.fields, f)
		if i == 0 {
			continue
		}
		first, size := utf8.DecodeRuneInString(t.texts[i])
		switch {
		case size == 0:
			return template{}, "must have text between two fields: without it different values could make the same key"
		case strings.ContainsRune("%0123456789ABCDEF", first):
			return template{}, "must not begin a text between two fields with %, a digit or A to F: escaped values have these"
		}
		t.escaped += string(first)
	}
	if problem := badKey(key); text != "" && problem != emptyKey {
		return t, problem
	}
	return t, ""
}

// parseField returns the field that a text in braces names; ok is false if a part of its name is empty.
func parseField(s string) (f field, ok bool) {
	name, inMetadata := strings.CutPrefix(s, "metadata:")
	f = field{metadata: inMetadata, path: strings.Split(name, ".")}
	return f, !slices.Contains(f.path, "")
}

const emptyKey = "must not be empty"

// badKey returns what is wrong with a filled-in key, or "".
func badKey(key string) string {
	switch {
	case key == "":
		return emptyKey
	case len(key) > maxKey:
		return fmt.Sprintf("must have at most %d bytes", maxKey)
	case strings.ContainsFunc(key, unprintable):
		return "must be valid UTF-8 without control characters"
	}
	return ""
}

func unprintable(r rune) bool { return r == utf8.RuneError || unicode.IsControl(r) }

// fill returns the text for a job. The empty template's is empty, any other's is a key.
func (t template) fill(job *rivertype.JobRow) (string, error) {
	if len(t.fields) == 0 {
		return strings.Join(t.texts, ""), nil
	}
	var b strings.Builder
	for i, f := range t.fields {
		b.WriteString(t.texts[i])
		value, err := f.value(job)
		if err != nil {
			return "", fmt.Errorf("%w: field {%v} of job %d %w", ErrKey, f, job.ID, err)
		}
		t.escape(&b, value)
	}
	b.WriteString(t.texts[len(t.fields)])
	key := b.String()
	if problem := badKey(key); problem != "" {
		return "", fmt.Errorf("%w: %.120q of job %d %s", ErrKey, key, job.ID, problem)
	}
	return key, nil
}

func (t template) escape(b *strings.Builder, value string) {
	for i, r := range value {
		size := utf8.RuneLen(r)
		if r == utf8.RuneError {
			_, size = utf8.DecodeRuneInString(value[i:])
		}
		switch {
		case unprintable(r), strings.ContainsRune(t.escaped, r):
			for _, c := range []byte(value[i : i+size]) {
				fmt.Fprintf(b, "%%%02X", c)
			}
		default:
			b.WriteRune(r)
		}
	}
}

// value returns the field's value as text: a string's characters, a number or a boolean as JSON writes it.
func (f field) value(job *rivertype.JobRow) (string, error) {
	document := job.EncodedArgs
	if f.metadata {
		document = job.Metadata
	}
	for i, step := range f.path {
		var object map[string]json.RawMessage
		if err := json.Unmarshal(document, &object); err != nil || object == nil {
			if i == 0 {
				return "", fmt.Errorf("cannot be found: there is no JSON object")
			}
			return "", fmt.Errorf("cannot be found: %s is not an object", strings.Join(f.path[:i], "."))
		}
		value, ok := object[step]
		if !ok {
			return "", fmt.Errorf("is missing")
		}
		document = value
	}
	document = bytes.TrimSpace(document)
	switch document[0] {
	case '"':
		var s string
		if err := json.Unmarshal(document, &s); err != nil {
			return "", err
		}
		if s == "" {
			return "", fmt.Errorf("is empty")
		}
		return s, nil
	case '{', '[':
		return "", fmt.Errorf("is an object or an array, must be a string, a number or a boolean")
	case 'n':
		return "", fmt.Errorf("is null")
	}
	return string(document), nil
}
