// Package schema makes the JSON schema of files from the structs that their options are decoded into.
package schema

import (
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/weir-go/weir/reload/internal/model"
	"github.com/weir-go/weir/strategies/budget"
)

type object = map[string]any

// A generator makes one schema.
type generator struct {
	*model.Kinds
	rule func(t reflect.Type, f model.Field) model.Rule
	// own has the properties of the structs that weir's own options are made of. A program's struct can embed them.
	own map[reflect.Type]object
	// defs has the definitions of structs that contain themselves, and names their names.
	defs  object
	names map[reflect.Type]string
}

// Make returns the schema of files with those kinds. own is the schema of weir's own kinds, whose descriptions and bounds
// come from the source of their options: the tests make it, with the rule of each field.
func Make(k *model.Kinds, own []byte, rule func(t reflect.Type, f model.Field) model.Rule) ([]byte, error) {
	g := generator{k, rule, nil, object{}, make(map[reflect.Type]string)}
	if own != nil {
		if err := g.readOwn(own); err != nil {
			return nil, err
		}
	}
	s := object{
		"$schema":     "https://json-schema.org/draft/2020-12/schema",
		"$id":         "https://github.com/weir-go/weir/reload/schema.json",
		"title":       "weir pipelines",
		"description": "Pipelines and their limiters, for package reload of weir.",
		"type":        "object",
		"properties": object{
			model.LimitersField:   byName("Limiters that pipelines share, by name.", "limiter"),
			model.BudgetsField:    byName("Budgets of extra attempts that pipelines share, by name.", "budget"),
			model.PipelinesField:  byName("Pipelines, by name.", "pipeline"),
			model.AllowEmptyField: object{"description": "Accept a file without pipelines.", "type": "boolean"},
			model.SchemaField:     object{"description": "The address of this schema, for editors; weir ignores it.", "type": "string"},
		},
		"patternProperties":    object{"^" + model.IgnoredPrefix: object{"description": "Ignored: a place for anchors."}},
		"additionalProperties": false,
		"anyOf": []any{
			object{"required": []string{model.PipelinesField}, "properties": object{model.PipelinesField: object{"minProperties": 1}}},
			object{"required": []string{model.AllowEmptyField}, "properties": object{model.AllowEmptyField: object{"const": true}}},
		},
		"$defs": g.definitions(),
	}
	if g.OnlySections {
		for _, field := range model.OwnFields {
			delete(properties(s), field)
		}
		for _, field := range []string{"$id", "title", "description", "anyOf"} {
			delete(s, field)
		}
		s["$defs"] = object{"duration": durationSchema}
	}
	g.addSections(s)
	maps.Copy(s["$defs"].(object), g.defs)
	text, err := json.MarshalIndent(s, "", "  ")
	return append(text, '\n'), err
}

// readOwn reads the schema of weir's own kinds.
func (g *generator) readOwn(text []byte) error {
	var known struct {
		Defs map[string]struct{ Properties object } `json:"$defs"`
	}
	g.own = make(map[reflect.Type]object)
	add := func(definition string, t reflect.Type) {
		for _, f := range model.FieldsOf(t) {
			g.own[f.Declares(t)] = known.Defs[definition].Properties
		}
	}
	err := json.Unmarshal(text, &known)
	for name, t := range model.OwnKinds().Limiters {
		if t != nil {
			add("limiter."+name, t)
		}
	}
	for name, kind := range model.OwnKinds().Strategies {
		add("strategy."+name, kind.Options)
	}
	add("budget", reflect.TypeFor[budget.Options]())
	add("store", reflect.TypeFor[model.Store]())
	return err
}

// addSections adds the top-level fields of the program to the schema of a file.
func (g generator) addSections(file object) {
	for name, kind := range g.Sections {
		definition := "section." + name
		s := ref(definition)
		if kind.Doc != "" {
			s["description"] = kind.Doc
		}
		properties(file)[name] = s
		file["$defs"].(object)[definition] = g.fieldsSchema(kind.Options)
		if kind.Builds != nil && !g.OnlySections {
			file["anyOf"] = append(file["anyOf"].([]any), object{"required": []string{name}})
		}
	}
	var required []string
	for _, name := range slices.Sorted(maps.Keys(g.Sections)) {
		if g.Sections[name].Required {
			required = append(required, name)
		}
	}
	if len(required) > 0 {
		file["required"] = required
	}
}

// byName is the schema of a mapping whose keys are names and whose values have the schema of the definition.
func byName(description, definition string) object {
	return object{"description": description, "type": "object", "additionalProperties": ref(definition)}
}

var durationSchema = object{
	"description": `A number with a unit, such as "250ms" or "1m30s"; the units are ns, us, ms, s, m and h.`,
	"type":        "string",
	"pattern":     `^[-+]?([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h)(([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))*$`,
}

func ref(definition string) object { return object{"$ref": "#/$defs/" + definition} }

// definitions returns the schemas that [ref] refers to, by name.
func (g generator) definitions() object {
	defs := object{
		"limiter":  g.limiterSchema(),
		"each":     mappingOfOneKind("limiter.", model.Partitionable),
		"strategy": mappingOfOneKind("strategy.", g.StrategyNames()),
		"budget":   g.optionsSchema(reflect.TypeFor[budget.Options]()),
		"store":    g.optionsSchema(reflect.TypeFor[model.Store]()),
		"pipeline": object{
			"type": "object",
			"properties": object{"strategies": object{
				"description": "The strategies, outermost first.",
				"type":        "array",
				"items":       ref("strategy"),
			}},
			"required":             []string{"strategies"},
			"additionalProperties": false,
		},
		"duration": durationSchema,
		"limiter.chain": object{
			"description": "Names of limiters: all must grant, in this order.",
			"type":        "array",
			"items":       object{"type": "string"},
			"minItems":    1,
			"uniqueItems": true,
		},
	}
	for name, options := range g.Limiters {
		if options != nil {
			defs["limiter."+name] = g.optionsSchema(options)
		}
	}
	for name, kind := range g.Strategies {
		defs["strategy."+name] = g.optionsSchema(kind.Options)
	}
	g.refine(defs)
	return defs
}

// refine adds to the schemas what the types of the options do not show.
func (g generator) refine(defs object) {
	partitioned := defs["limiter.partitioned"].(object)
	properties(partitioned)["each"] = object{"$ref": "#/$defs/each", "description": "The limiter that every key gets."}
	partitioned["required"] = []string{"each", "key"}

	limiters := defs["strategy.rate_limiter"].(object)
	for _, kind := range g.LimiterNames() {
		properties(limiters)[kind] = ref("limiter." + kind)
	}
	limiters["oneOf"] = eachRequired(append([]string{model.LimiterField}, g.LimiterNames()...))
	g.addStore(limiters)
}

// limiterSchema is the schema of a mapping of one kind to its options, with or without a store.
func (g generator) limiterSchema() object {
	s := mappingOfKinds("limiter.", g.LimiterNames())
	s["oneOf"] = eachRequired(g.LimiterNames())
	g.addStore(s)
	return s
}

// addStore adds the store to the schema of a limiter. Only some kinds can have one.
func (g generator) addStore(limiter object) {
	name := g.withFunctions(object{"type": "string"}, model.LimiterStore)
	properties(limiter)[model.StoreField] = object{
		"description": "The store that holds the limiter's state, which all instances then share: its name, or a mapping with its name and options. The state is in the process unless set.",
		"anyOf":       []any{name, ref("store")},
	}
	limiter["dependentSchemas"] = object{model.StoreField: object{"anyOf": eachRequired(model.Storable)}}
}

// eachRequired returns one schema for each field, which requires that field.
func eachRequired(fields []string) []any {
	var all []any
	for _, f := range fields {
		all = append(all, object{"required": []string{f}})
	}
	return all
}

func properties(schema object) object { return schema["properties"].(object) }

// optionsSchema is the schema of the options of a kind.
func (g generator) optionsSchema(t reflect.Type) object {
	s := g.fieldsSchema(t)
	for _, f := range model.FieldsOf(t) {
		if f.Purpose != "" {
			g.withFunctions(properties(s)[f.Name].(object), f.Purpose)
		}
	}
	return s
}

// withFunctions limits s to the names of the functions that the program has registered. If there are none, or a file can
// name others because of AcceptUnknown, s is not limited.
func (g generator) withFunctions(s object, what model.Purpose) object {
	if names := g.Functions[what]; len(names) > 0 && !g.AcceptUnknown {
		s["enum"] = names
	}
	return s
}

// mappingOfOneKind is the schema of a mapping of one kind to its options.
func mappingOfOneKind(prefix string, kinds []string) object {
	s := mappingOfKinds(prefix, kinds)
	s["minProperties"], s["maxProperties"] = 1, 1
	return s
}

// mappingOfKinds is the schema of a mapping of any of the kinds to their options.
func mappingOfKinds(prefix string, kinds []string) object {
	p := object{}
	for _, kind := range kinds {
		p[kind] = ref(prefix + kind)
	}
	return object{"type": "object", "properties": p, "additionalProperties": false}
}

// structSchema is the schema of a struct, or a reference to it if the struct contains itself.
func (g generator) structSchema(t reflect.Type) object {
	if !model.Recursive(t) {
		return g.fieldsSchema(t)
	}
	name, known := g.names[t]
	if !known {
		name = "struct." + t.Name()
		for g.defs[name] != nil { // of a type with the same name in another package
			name += "_"
		}
		g.names[t], g.defs[name] = name, object{}
		g.defs[name] = g.fieldsSchema(t)
	}
	return ref(name)
}

// fieldsSchema is the schema of the fields of a struct.
func (g generator) fieldsSchema(t reflect.Type) object {
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
func (g generator) typeSchema(t reflect.Type, r model.Rule) object {
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

func (g generator) plainSchema(t reflect.Type, r model.Rule) object {
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
