package reload_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v4"

	"github.com/weir-go/weir/reload"
)

var update = flag.Bool("update", false, "write schema.json and the golden files of testdata")

const howToUpdate = "if the change is meant, run go test ./reload -update, and read the diff"

func TestSchema_UpToDate(t *testing.T) {
	generated, err := reload.NewKinds().Schema()
	require.NoError(t, err)
	if *update {
		require.NoError(t, os.WriteFile("schema.json", generated, 0o644))
		return
	}
	assert.Equal(t, string(generated), string(reload.Schema()), howToUpdate)
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
