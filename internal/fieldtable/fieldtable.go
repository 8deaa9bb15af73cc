// Package fieldtable makes the reference pages of file formats: it fills templates with tables of the fields, which it
// makes from the JSON schema of the format. It is for the tests that compare the pages with the code.
package fieldtable

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// A Definition is one of the schema's.
type Definition struct {
	Ref         string                 `json:"$ref"`
	Type        string                 `json:"type"`
	Description string                 `json:"description"`
	Properties  map[string]*Definition `json:"properties"`
	Named       json.RawMessage        `json:"additionalProperties"` // false, or the values of a map by name
	Items       *Definition            `json:"items"`
	Required    []string               `json:"required"`
	Enum        []any                  `json:"enum"`
	AnyOf       []*Definition          `json:"anyOf"`
	Const       any                    `json:"const"`
	Minimum     *float64               `json:"minimum"`
	Above       *float64               `json:"exclusiveMinimum"`
	Maximum     *float64               `json:"maximum"`
}

// Definitions returns the definitions of a schema, by name.
func Definitions(schema []byte) (map[string]*Definition, error) {
	var s struct {
		Defs map[string]*Definition `json:"$defs"`
	}
	err := json.Unmarshal(schema, &s)
	return s.Defs, err
}

// Words say what can be written in a field that refers to a definition, by the name of the definition.
type Words map[string]string

// Table returns the table of the fields of d, the required ones first. If path is not empty, fields that are mappings
// have links to their own tables, under the heading path.field.
func (w Words) Table(d *Definition, path string) string {
	if len(d.Properties) == 0 {
		if d.Description != "" {
			return d.Description + "\n"
		}
		return "It has no fields: `{}`.\n"
	}
	var b strings.Builder
	b.WriteString("| field | value | |\n|---|---|---|\n")
	for _, name := range d.names() {
		p := d.Properties[name]
		required := ""
		if slices.Contains(d.Required, name) {
			required = "**Required.** "
		}
		at := ""
		if path != "" {
			at = path + "." + name
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s%s |\n", name, w.form(p, at), required, p.Description)
	}
	return b.String()
}

// Tables returns the tables of d and of all mappings in it, by path.
func (w Words) Tables(d *Definition, path string) map[string]string {
	all := make(map[string]string)
	w.addTables(all, d, path)
	return all
}

func (w Words) addTables(all map[string]string, d *Definition, path string) {
	d = d.element()
	if d.Type != "object" || d.open() {
		return
	}
	all[path] = w.Table(&Definition{Properties: d.Properties, Required: d.Required}, path)
	for name, p := range d.Properties {
		w.addTables(all, p, path+"."+name)
	}
}

// names returns the names of the fields, the required ones first.
func (d *Definition) names() []string {
	names := slices.Sorted(maps.Keys(d.Properties))
	required := func(name string) bool { return slices.Contains(d.Required, name) }
	return slices.Concat(
		slices.DeleteFunc(slices.Clone(names), func(name string) bool { return !required(name) }),
		slices.DeleteFunc(names, required),
	)
}

// open reports whether anything can be in the mapping.
func (d *Definition) open() bool { return string(d.Named) == "true" }

// element returns what is in a list, or in a map by name, or d itself.
func (d *Definition) element() *Definition {
	if d.Items != nil {
		return d.Items.element()
	}
	var values Definition
	if json.Unmarshal(d.Named, &values) == nil && values.Type != "" {
		return values.element()
	}
	return d
}

// form says in a word what can be written in a field; "" if there is no word for it.
func (w Words) form(d *Definition, path string) string {
	var forms []string
	for _, alternative := range d.AnyOf {
		if form := w.form(alternative, path); form != "" {
			forms = append(forms, form)
		}
	}
	for _, e := range d.Enum {
		forms = append(forms, fmt.Sprintf("`%v`", e))
	}
	words, known := w.of(d)
	switch {
	case len(forms) > 0:
		return strings.Join(forms, " or ")
	case d.Const != nil:
		return fmt.Sprintf("`%v`", d.Const)
	case known:
		return words
	case d.Type == "integer", d.Type == "number":
		return "number" + d.bounds()
	case d.Type == "boolean":
		return "`true` or `false`"
	case d.Type == "string":
		return "text"
	default:
		if words, known := w.of(d.element()); known && d.Items != nil {
			return "list of " + words
		}
		return d.container(path)
	}
}

// of returns the words for the definition that d refers to.
func (w Words) of(d *Definition) (words string, known bool) {
	words, known = w[strings.TrimPrefix(d.Ref, "#/$defs/")]
	return words, known
}

// container is form for a list or a mapping.
func (d *Definition) container(path string) string {
	element := d.element()
	mapping := "[mapping](#" + strings.ReplaceAll(path, ".", "") + ")"
	several := strings.Replace(mapping, "mapping", "mappings", 1)
	switch {
	case d.open():
		return "mapping"
	case d.Items != nil && element.Type == "object" && path != "":
		return "list of " + several
	case d.Items != nil:
		return "list"
	case path == "":
		return ""
	case element != d:
		return "names and " + several
	default:
		return mapping
	}
}

// bounds says how small and how large a number can be.
func (d *Definition) bounds() (words string) {
	if d.Minimum != nil {
		words = fmt.Sprintf(" from %v", *d.Minimum)
	}
	if d.Above != nil {
		words = fmt.Sprintf(" above %v", *d.Above)
	}
	if d.Maximum != nil {
		words += fmt.Sprintf(" to %v", *d.Maximum)
	}
	return words
}

// Fill returns the template with the parts in place of its lines "{{name}}". Each part must be in the template, and each
// name must have a part.
func Fill(template string, parts map[string]string) (string, error) {
	var page strings.Builder
	missing := maps.Clone(parts)
	for line := range strings.Lines(template) {
		name, ok := strings.CutPrefix(strings.TrimSpace(line), "{{")
		if !ok {
			page.WriteString(line)
			continue
		}
		name = strings.TrimSuffix(name, "}}")
		part, known := parts[name]
		if !known {
			return "", fmt.Errorf("there is nothing for {{%s}}", name)
		}
		page.WriteString(part)
		delete(missing, name)
	}
	if len(missing) > 0 {
		return "", fmt.Errorf("the template does not have {{%s}}", strings.Join(slices.Sorted(maps.Keys(missing)), "}}, {{"))
	}
	return page.String(), nil
}
