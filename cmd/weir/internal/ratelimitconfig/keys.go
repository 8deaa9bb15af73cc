package ratelimitconfig

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	yamlv2 "go.yaml.in/yaml/v2"
	"go.yaml.in/yaml/v4"
)

// validKeys are the keys that a file can have, at any depth. The other server does not check that a key is where it has an
// effect.
var validKeys = []string{
	"domain", "key", "value", "descriptors", "rate_limit", "unit", "requests_per_unit", "unlimited", "shadow_mode", "quota_mode",
	"name", "replaces", "detailed_metric", "value_to_metric", "share_threshold", "metadata",
}

// checkKeys checks the keys and the kinds of values, except in metadata.
func checkKeys(p *problems, at place, m map[any]any) {
	keys := slices.SortedFunc(maps.Keys(m), func(a, b any) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
	for _, k := range keys {
		key, ok := k.(string)
		here := at.key(fmt.Sprint(k))
		switch {
		case !ok:
			p.add(here.line, here.column, "", "the key %.60q must be text, which is written in quotes", fmt.Sprint(k))
			continue
		case !slices.Contains(validKeys, key):
			p.add(here.line, here.column, "", "unknown key %.60q, %s", key, suggest(key))
			continue
		case key == "metadata":
			continue
		}
		checkValue(p, at.get(key), key, m[k])
	}
}

// checkValue checks the value of a key.
func checkValue(p *problems, at place, key string, value any) {
	switch v := value.(type) {
	case []any:
		for i, e := range v {
			m, ok := e.(map[any]any)
			if !ok {
				here := at.item(i)
				p.add(here.line, here.column, key, "must be a list of mappings, found %.60q", fmt.Sprint(e))
				continue
			}
			checkKeys(p, at.item(i), m)
		}
	case map[any]any:
		checkKeys(p, at, v)
	case string, int, int64, bool, nil:
	default:
		p.add(at.line, at.column, key, "must be text, a whole number, true or false, found %.60q", fmt.Sprint(value))
	}
}

// suggest returns what a misspelt key may stand for.
func suggest(key string) string {
	plain := func(s string) string { return strings.ToLower(strings.NewReplacer("_", "", "-", "").Replace(s)) }
	for _, valid := range validKeys {
		if plain(valid) == plain(key) {
			return "did you mean " + valid + "?"
		}
	}
	return "must be one of " + strings.Join(validKeys, ", ")
}

// yamlLine finds the line in an error of the YAML package.
var yamlLine = regexp.MustCompile(`^(?:yaml: )?line ([0-9]+): `)

// addYAML adds an error of the YAML package.
func (p *problems) addYAML(err error) {
	texts := []string{err.Error()}
	if several, ok := errors.AsType[*yamlv2.TypeError](err); ok {
		texts = several.Errors
	}
	for _, text := range texts {
		line := 1
		if m := yamlLine.FindStringSubmatch(text); m != nil {
			line, _ = strconv.Atoi(m[1])
			text = text[len(m[0]):]
		}
		p.add(line, 1, "", "%.500s", strings.TrimPrefix(text, "yaml: "))
	}
}

// A place is where a value of a file stands. The zero place is that of a value that is not written.
type place struct {
	line, column int
	node         *yaml.Node
}

// placesOf returns the place of the content. If another version of the YAML package cannot read it, no places are known.
func placesOf(content []byte) (at place) {
	defer func() {
		if recover() != nil {
			at = place{}
		}
	}()
	var documents []yaml.Node
	if err := yaml.Load(content, &documents, yaml.WithAllDocuments(), yaml.WithUniqueKeys(false)); err != nil || len(documents) == 0 {
		return place{}
	}
	if n := &documents[0]; n.Kind == yaml.DocumentNode && len(n.Content) > 0 {
		return placeOf(n.Content[0])
	}
	return placeOf(&documents[0])
}

func placeOf(n *yaml.Node) place {
	for n.Kind == yaml.AliasNode && n.Alias != nil {
		n = n.Alias
	}
	return place{n.Line, n.Column, n}
}

// get returns the place of the value of a key, or the place of the mapping if the key is not written.
func (p place) get(key string) place {
	if p.node != nil && p.node.Kind == yaml.MappingNode {
		for i := len(p.node.Content) - 2; i >= 0; i -= 2 { // the last one counts
			if p.node.Content[i].Value == key {
				return placeOf(p.node.Content[i+1])
			}
		}
	}
	return place{line: p.line, column: p.column}
}

// key returns the place of a key itself.
func (p place) key(key string) place {
	if p.node != nil && p.node.Kind == yaml.MappingNode {
		for i := 0; i+1 < len(p.node.Content); i += 2 {
			if p.node.Content[i].Value == key {
				return placeOf(p.node.Content[i])
			}
		}
	}
	return place{line: p.line, column: p.column}
}

// item returns the place of an item of a list.
func (p place) item(i int) place {
	if p.node != nil && p.node.Kind == yaml.SequenceNode && i < len(p.node.Content) {
		return placeOf(p.node.Content[i])
	}
	return place{line: p.line, column: p.column}
}
