// Package schema makes the JSON schema of files from the structs that their options are decoded into.
package schema

import (
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/weir-go/weir/reload/internal/model"
)

type object = map[string]any

// A generator adds to one schema.
type generator struct {
	file object
	rule func(t reflect.Type, f model.Field) model.Rule
	// own has the properties of the structs that weir's own options are made of. A program's struct can embed them.
	own map[reflect.Type]object
	// names has the definitions of structs that contain themselves, and "" for the structs around.
	names map[reflect.Type]string
}

// Own returns the schema of files with weir's own kinds: base, and the options of the kinds. rule returns the rule of each
// field, with the description and the bounds that stand in the source of the options.
func Own(base []byte, rule func(t reflect.Type, f model.Field) model.Rule) ([]byte, error) {
	g := generator{rule: rule, names: make(map[reflect.Type]string)}
	if err := json.Unmarshal(base, &g.file); err != nil {
		return nil, err
	}
	for name, t := range model.OwnOptions() {
		g.define(name, t)
	}
	k := model.OwnKinds()
	g.addKinds(k.StrategyNames(), k.LimiterNames())
	return g.text()
}

// Make adds to the schema of files with weir's own kinds everything else of k.
func Make(own []byte, k *model.Kinds) ([]byte, error) {
	g := generator{own: make(map[reflect.Type]object), names: make(map[reflect.Type]string)}
	if err := json.Unmarshal(own, &g.file); err != nil {
		return nil, err
	}
	known := model.OwnOptions()
	for name, t := range known {
		for _, f := range model.FieldsOf(t) {
			g.own[f.Declares(t)] = properties(g.definition(name))
			if names := k.Functions[f.Purpose]; len(names) > 0 && !k.AcceptUnknown {
				properties(g.definition(name))[f.Name].(object)["enum"] = names
			}
		}
	}
	if stores := k.Functions[model.LimiterStore]; len(stores) > 0 && !k.AcceptUnknown {
		g.definition("store_name")["enum"] = stores
	}
	var strategies, limiters []string
	for _, name := range k.StrategyNames() {
		if known["strategy."+name] == nil {
			strategies = append(strategies, name)
			g.define("strategy."+name, k.Strategies[name].Options)
		}
	}
	for _, name := range k.LimiterNames() {
		if t := k.Limiters[name]; t != nil && known["limiter."+name] == nil {
			limiters = append(limiters, name)
			g.define("limiter."+name, t)
		}
	}
	g.addKinds(strategies, limiters)
	g.addSections(k)
	return g.text()
}

func (g *generator) text() ([]byte, error) {
	text, err := json.MarshalIndent(g.file, "", "  ")
	return append(text, '\n'), err
}

func (g *generator) defs() object { return g.file["$defs"].(object) }

func (g *generator) definition(name string) object { return g.defs()[name].(object) }

func properties(schema object) object { return schema["properties"].(object) }

func ref(definition string) object { return object{"$ref": "#/$defs/" + definition} }

// define adds the definition of the options of a kind to what the base says of them.
func (g *generator) define(name string, t reflect.Type) {
	s := g.fieldsSchema(t)
	if base, ok := g.defs()[name].(object); ok {
		maps.Copy(properties(s), properties(base))
		delete(base, "properties")
		maps.Copy(s, base)
	}
	g.defs()[name] = s
}

// addKinds adds kinds where a file can have one of them.
func (g *generator) addKinds(strategies, limiters []string) {
	for _, name := range strategies {
		properties(g.definition("strategy"))[name] = ref("strategy." + name)
	}
	for _, of := range []string{"limiter", "strategy.rate_limiter"} {
		in := g.definition(of)
		one := in["oneOf"].([]any)
		for _, name := range limiters {
			properties(in)[name] = ref("limiter." + name)
			one = append(one, object{"required": []string{name}})
		}
		in["oneOf"] = one
	}
}

// addSections adds the top-level fields of the program.
func (g *generator) addSections(k *model.Kinds) {
	if k.OnlySections {
		for _, field := range model.OwnFields {
			delete(properties(g.file), field)
		}
		for _, field := range []string{"$id", "title", "description", "anyOf"} {
			delete(g.file, field)
		}
		maps.DeleteFunc(g.defs(), func(name string, _ any) bool { return name != "duration" })
	}
	var required []string
	for _, name := range slices.Sorted(maps.Keys(k.Sections)) {
		kind := k.Sections[name]
		s := ref("section." + name)
		if kind.Doc != "" {
			s["description"] = kind.Doc
		}
		properties(g.file)[name] = s
		g.defs()["section."+name] = g.fieldsSchema(kind.Options)
		if kind.Builds != nil && !k.OnlySections {
			g.file["anyOf"] = append(g.file["anyOf"].([]any), object{"required": []string{name}})
		}
		if kind.Required {
			required = append(required, name)
		}
	}
	if len(required) > 0 {
		g.file["required"] = required
	}
}

// structSchema is the schema of a struct, or a reference to it if the struct contains itself.
func (g *generator) structSchema(t reflect.Type) object {
	if name, known := g.names[t]; known {
		if name == "" { // t is in itself
			name = "struct." + t.Name()
			for g.defs()[name] != nil { // of a type with the same name in another package
				name += "_"
			}
			g.names[t], g.defs()[name] = name, object{}
		}
		return ref(name)
	}
	g.names[t] = ""
	s := g.fieldsSchema(t)
	if name := g.names[t]; name != "" {
		g.defs()[name] = s
		return ref(name)
	}
	delete(g.names, t)
	return s
}

// fieldsSchema is the schema of the fields of a struct.
func (g *generator) fieldsSchema(t reflect.Type) object {
	p := object{}
	var required []string
	for _, f := range model.FieldsOf(t) {
		if f.Function {
			continue
		}
		if f.Required {
			required = append(required, f.Name)
		}
		if own, ok := g.own[f.Declares(t)][f.Name]; ok {
			p[f.Name] = own
			continue
		}
		if g.rule != nil {
			f.Rule = g.rule(t, f)
		}
		s := g.typeSchema(f.Type, f.Rule)
		doc := f.Doc
		if f.Fixed {
			doc = strings.TrimSpace(doc + " A change needs a restart.")
		}
		if doc != "" {
			s["description"] = doc
		}
		p[f.Name] = s
	}
	s := object{"type": "object", "properties": p, "additionalProperties": false}
	if len(required) > 0 {
		s["required"] = required
	}
	if _, is := model.OneOf(t); is {
		s["minProperties"], s["maxProperties"] = 1, 1
	}
	return s
}

// typeSchema is the schema of the values of a type, with the words of the rule.
func (g *generator) typeSchema(t reflect.Type, r model.Rule) object {
	s := g.plainSchema(t, r)
	if len(r.Words) == 0 {
		return s
	}
	var texts []string
	for _, w := range r.Words {
		texts = append(texts, w.Text)
	}
	choice := []any{s, object{"enum": texts}}
	if slices.Contains(r.Words, model.Off) {
		choice = append(choice, object{"const": model.Off.Value})
	}
	return object{"anyOf": choice}
}

func (g *generator) plainSchema(t reflect.Type, r model.Rule) object {
	switch {
	case model.IsText(t):
		s := object{"type": "string"}
		if texts := model.EnumOf(t); texts != nil {
			s["enum"] = texts
		}
		return s
	case t == model.DurationType:
		s := ref("duration")
		if r.Default != "" || r.Least > 0 {
			s["pattern"] = "^[^-]*[1-9]" // more than 0
		}
		return s
	case t == model.AnyType:
		return object{}
	}
	switch t.Kind() {
	case reflect.Pointer:
		return g.plainSchema(t.Elem(), r)
	case reflect.Struct:
		return g.structSchema(t)
	case reflect.Slice:
		return object{"type": "array", "items": g.typeSchema(t.Elem(), r)}
	case reflect.Map:
		if t.Elem() == model.AnyType {
			return object{"type": "object", "additionalProperties": true}
		}
		return object{"type": "object", "additionalProperties": g.typeSchema(t.Elem(), r)}
	case reflect.String:
		return object{"type": "string"}
	case reflect.Bool:
		return object{"type": "boolean"}
	default:
		return numberSchema(t, r)
	}
}

func numberSchema(t reflect.Type, r model.Rule) object {
	s := object{"type": "integer"}
	fraction := t.Kind() == reflect.Float32 || t.Kind() == reflect.Float64
	if fraction {
		s["type"] = "number"
	}
	if r.Most != 0 {
		s["maximum"] = r.Most
	}
	if r.Below != 0 {
		s["exclusiveMaximum"] = r.Below
	}
	switch {
	case r.Default != "" && r.Least <= 0 && fraction: // "off" and -1 are in typeSchema
		s["exclusiveMinimum"] = 0
	case r.Default != "" && r.Least <= 0:
		s["minimum"] = 1
	case r.HasLeast:
		s["minimum"] = r.Least
	case strings.HasPrefix(t.Kind().String(), "uint"):
		s["minimum"] = 0
	}
	return s
}
