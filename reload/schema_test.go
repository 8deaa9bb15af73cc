package reload_test

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"flag"
	"go/ast"
	"go/parser"
	"go/token"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v4"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/rate"
	"github.com/weir-go/weir/reload"
	"github.com/weir-go/weir/reload/internal/model"
	"github.com/weir-go/weir/reload/internal/schema"
	"github.com/weir-go/weir/store"
)

var update = flag.Bool("update", false, "write schema.json and the golden files of testdata")

const howToUpdate = "if the change is meant, run go test ./reload -update, and read the diff"

func TestSchema_UpToDate(t *testing.T) {
	comments := &comments{t: t, structs: make(map[string]map[string]string)}
	generated, err := schema.Own(read(t, "testdata/schema/base.json"), func(options reflect.Type, f model.Field) model.Rule {
		r := f.Rule
		r.Doc = comments.of(options, f)
		assert.NotEmpty(t, r.Doc, "%v: %s", options, f.GoName)
		setBounds(&r, options, f)
		return r
	})
	require.NoError(t, err)
	if *update {
		require.NoError(t, os.WriteFile("schema.json", generated, 0o644))
		return
	}
	assert.Equal(t, string(generated), string(reload.Schema()), howToUpdate)
	again, err := reload.NewKinds().Schema()
	require.NoError(t, err)
	assert.Equal(t, string(generated), string(again))
}

// comments reads the comments of the fields of structs from their source.
type comments struct {
	t       *testing.T
	structs map[string]map[string]string // by the package and the name of the struct, and by the name of the field
}

// of returns the first paragraph of the comment of a field, in the words of a file: with the names of fields and of the
// values of enums in a file, and without references to other parts of the source and to fields that a file cannot set.
func (c *comments) of(options reflect.Type, f model.Field) string {
	in := f.Declares(options)
	key := in.PkgPath() + "." + in.Name()
	if c.structs[key] == nil {
		c.read(in.PkgPath())
	}
	doc, _, _ := strings.Cut(c.structs[key][f.GoName], "\n\n")
	doc = strings.TrimSpace(strings.ReplaceAll(doc, "\n", " "))
	doc = regexp.MustCompile(`[,;] see (\[[^]]*\]|the package comment|package \w+)(: [^.]*)?`).ReplaceAllString(doc, "")
	doc = regexp.MustCompile(`\[([\w.]+)\]`).ReplaceAllString(doc, "$1")
	words := make(map[string]string)
	for _, of := range model.FieldsOf(options) {
		words[of.GoName] = of.Name
		for _, text := range model.EnumOf(of.Type) {
			words[strings.ReplaceAll(titles(text), "_", "")] = text
		}
		if of.Function {
			doc = regexp.MustCompile(`[^.]*\b`+of.GoName+`\b[^.]*\. ?`).ReplaceAllString(doc, "")
		}
	}
	doc = regexp.MustCompile(`"[^"]*"|(\w+\.)?[A-Z]\w+`).ReplaceAllStringFunc(doc, func(word string) string {
		return cmp.Or(words[word[strings.LastIndex(word, ".")+1:]], word)
	})
	if rest, ok := strings.CutPrefix(doc, f.Name+" is "); ok {
		doc = strings.ToUpper(rest[:1]) + rest[1:]
	}
	return strings.TrimSpace(doc)
}

// titles capitalizes each part of a text such as oldest_first.
func titles(text string) string {
	parts := strings.Split(text, "_")
	for i, p := range parts {
		parts[i] = strings.ToUpper(p[:1]) + p[1:]
	}
	return strings.Join(parts, "_")
}

// read reads the structs of a package of this module.
func (c *comments) read(pkg string) {
	dir := "../" + strings.TrimPrefix(pkg, "github.com/weir-go/weir/")
	for _, name := range files(c.t, dir+"/*.go") {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments)
		require.NoError(c.t, err)
		ast.Inspect(file, func(n ast.Node) bool {
			of, ok := n.(*ast.TypeSpec)
			if !ok {
				return true
			}
			fields := make(map[string]string)
			if s, ok := of.Type.(*ast.StructType); ok {
				for _, f := range s.Fields.List {
					for _, name := range f.Names {
						fields[name.Name] = f.Doc.Text()
					}
				}
			}
			c.structs[pkg+"."+of.Name.Name] = fields
			return false
		})
	}
}

// setBounds sets the bounds of a number that the Validate method of its options has.
func setBounds(r *model.Rule, options reflect.Type, f model.Field) {
	refused := func(value float64) bool {
		v := reflect.New(options)
		switch field := v.Elem().FieldByIndex(f.Index); {
		case field.CanInt():
			field.SetInt(int64(value))
		case field.CanFloat():
			field.SetFloat(value)
		default:
			return false
		}
		var err error
		switch o := v.Interface().(type) {
		case *model.Store:
			err = store.Check("any", rate.Example(rate.FixedWindow), &o.LimiterOptions)
		case interface{ Validate() error }:
			err = o.Validate()
		}
		wrong, _ := errors.AsType[*weir.OptionsError](err)
		return wrong != nil && slices.ContainsFunc(wrong.Fields, func(of weir.FieldError) bool { return of.Path == f.GoName })
	}
	first := 0.0
	if r.Default != "" {
		first = 0.5 // 0 is the default
	}
	if f.Type.Kind() != reflect.Float64 {
		first = math.Ceil(first)
	}
	switch {
	case refused(first) && !refused(1):
		r.HasLeast, r.Least = true, 1
	case refused(first) && !refused(2):
		r.HasLeast, r.Least = true, 2
	case refused(-1) && !refused(0):
		r.HasLeast = true
	}
	switch {
	case f.Type.Kind() != reflect.Float64 || refused(0.5):
	case refused(1):
		r.Below = 1
	case refused(2):
		r.Most = 1
	}
}

func TestSchema_Files(t *testing.T) {
	for _, name := range files(t, "testdata/*.yaml", "testdata/*.json", "testdata/valid/*.yaml", "testdata/valid/*.json") {
		assert.NoError(t, checkSchema(t, reload.Schema(), read(t, name)), name)
	}
	for _, name := range files(t, "testdata/invalid/*.yaml") {
		data := read(t, name)
		if !bytes.Contains(data, []byte("# only Parse knows")) {
			assert.Error(t, checkSchema(t, reload.Schema(), data), name)
		}
	}
}

// What Parse finds wrong with one strategy, the schema finds, too, unless it takes
// arithmetic.
func TestSchema_Strategies(t *testing.T) {
	looser := []string{
		"circuit_breaker: {name: h, failure_ratio: off}",
		"hedging: {name: l, delay: 1s, at_once: true}",
		"hedging: {name: m, delay: off, at_once: true}",
		"rate_limiter: {name: d, throttler: {}, shadow: true}",
		"rate_limiter: {name: e, unlimited: {}, handle: transient}",
		"rate_limiter: {name: f, adaptive: {}, handle: unknown}",
		"chaos_behavior: {name: f, behavior: flash}",
		"rate_limiter: {name: b, sliding_window: {permit_limit: 1, window: 1s, segments_per_window: 7}}",
		"rate_limiter: {name: h, shadow: true, permits: price, unlimited: {}}",
		"rate_limiter: {name: b, calendar: {permit_limit: 1, every: month from 32}}",
		"rate_limiter: {name: c, calendar: {permit_limit: 1, every: month, zone: Local}}",
	}
	checked := 0
	for line := range strings.Lines(string(read(t, "testdata/invalid/values.yaml"))) {
		strategy, ok := strings.CutPrefix(strings.TrimSpace(line), "- ")
		if !ok {
			continue
		}
		checked++
		file := []byte("pipelines: {a: {strategies: [" + strategy + "]}}")
		_, err := reload.Parse("f", file, nil)
		assert.Error(t, err, strategy)
		err = checkSchema(t, reload.Schema(), file)
		assert.Equal(t, slices.Contains(looser, strategy), err == nil, strategy)
	}
	assert.Greater(t, checked, 20)
}

// The schema and Parse accept the same numbers.
func TestSchema_Numbers(t *testing.T) {
	for strategy, valid := range map[string]bool{
		"concurrency: {permit_limit: 3.0}":                  true,
		"concurrency: {permit_limit: 1e3}":                  true,
		"concurrency: {permit_limit: 3, queue_limit: -0.0}": true,
		"concurrency: {permit_limit: 1E+3}":                 true,
		"concurrency: {permit_limit: 2.5}":                  false,
		"concurrency: {permit_limit: 1e-1}":                 false,
		"concurrency: {permit_limit: 0.0}":                  false,
		"throttler: {failure_rate: 0.99}":                   true,
		"throttler: {failure_rate: 1}":                      false,
		"throttler: {period: 0s}":                           false,
		"throttler: {period: -1m}":                          false,
		"throttler: {period: +1m}":                          true,
		"fixed_window: {permit_limit: 1, window: 0h0s}":     false,
		"fixed_window: {permit_limit: 1, window: 0h20s}":    true,
	} {
		file := []byte("pipelines: {a: {strategies: [{rate_limiter: {" + strategy + "}}]}}")
		_, err := reload.Parse("f", file, nil)
		assert.Equal(t, valid, err == nil, "Parse %s: %v", strategy, err)
		err = checkSchema(t, reload.Schema(), file)
		assert.Equal(t, valid, err == nil, "schema %s: %v", strategy, err)
	}
	for delay, valid := range map[string]bool{"off": true, "1ns": true, "-1ns": false} {
		file := []byte("pipelines: {a: {strategies: [{retry: {delay: " + delay + "}}]}}")
		_, err := reload.Parse("f", file, nil)
		assert.Equal(t, valid, err == nil, "Parse %s: %v", delay, err)
		err = checkSchema(t, reload.Schema(), file)
		assert.Equal(t, valid, err == nil, "schema %s: %v", delay, err)
	}
}

func TestSchema_KindsOfTheProgram(t *testing.T) {
	k := reload.NewKinds()
	registerEverything(k)
	schema, err := k.Schema()
	require.NoError(t, err)
	data := []byte(ownKindsFile)
	assert.NoError(t, checkSchema(t, schema, data))
	assert.Error(t, checkSchema(t, reload.Schema(), data))
	assert.Error(t, checkSchema(t, schema, bytes.ReplaceAll(data, []byte("client_ip"), []byte("client_id"))))
	assert.Error(t, checkSchema(t, schema, bytes.ReplaceAll(data, []byte("threshold"), []byte("treshold"))))
}

// checkSchema tells what the schema finds wrong with a YAML document.
func checkSchema(t *testing.T, schema, data []byte) error {
	t.Helper()
	parsed, err := jsonschema.UnmarshalJSON(bytes.NewReader(schema))
	require.NoError(t, err)
	c := jsonschema.NewCompiler()
	require.NoError(t, c.AddResource("schema.json", parsed))
	compiled, err := c.Compile("schema.json")
	require.NoError(t, err)

	var document any
	if err := yaml.Load(data, &document); err != nil {
		return err
	}
	asJSON, err := json.Marshal(document)
	if err != nil {
		return err // a number that JSON does not have
	}
	instance, err := jsonschema.UnmarshalJSON(bytes.NewReader(asJSON))
	require.NoError(t, err)
	return compiled.Validate(instance)
}

func files(t testing.TB, patterns ...string) []string {
	t.Helper()
	var all []string
	for _, p := range patterns {
		found, err := filepath.Glob(p)
		require.NoError(t, err)
		require.NotEmpty(t, found, p)
		all = append(all, found...)
	}
	return all
}

func read(t testing.TB, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(name)
	require.NoError(t, err)
	return data
}

// golden compares text with a file, or writes it with -update.
func golden(t *testing.T, name, text string) {
	t.Helper()
	if *update {
		require.NoError(t, os.WriteFile(name, []byte(text), 0o644))
		return
	}
	want := strings.ReplaceAll(string(read(t, name)), "\r\n", "\n")
	assert.Equal(t, want, text, howToUpdate)
}
