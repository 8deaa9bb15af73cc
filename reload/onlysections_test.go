package reload_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/reload"
)

// A tool can have a file of its own.
func TestKinds_OnlySections(t *testing.T) {
	k := reload.NewKinds()
	k.OnlySections()
	reload.RegisterSection(k, "load", reload.Section[remote]{})
	f, err := reload.Parse("x.yaml", []byte("{load: {address: here}, x-anchors: {}}"), k)
	require.NoError(t, err)
	o, ok := reload.SectionOf[remote](f, "load")
	assert.True(t, ok)
	assert.Equal(t, remote{Address: "here"}, o)

	for text, want := range map[string]string{
		"{}":                             "",
		"5":                              "x.yaml:1:1: a file must be a mapping, found the number 5",
		"load: {}":                       "x.yaml:1:7: load: address is missing",
		"limiters: {a: {unlimited: {}}}": `x.yaml:1:1: unknown field "limiters", there is only load`,
		"budgets: {}":                    `unknown field "budgets"`,
		"pipelines: {}":                  `unknown field "pipelines"`,
		"allow_empty: true":              `unknown field "allow_empty"`,
	} {
		_, err := reload.Parse("x.yaml", []byte(text), k)
		if want == "" {
			assert.NoError(t, err, text)
			continue
		}
		assert.ErrorContains(t, err, want, text)
	}

	text, err := k.Schema()
	require.NoError(t, err)
	var schema struct{ Properties map[string]any }
	require.NoError(t, json.Unmarshal(text, &schema))
	assert.Len(t, schema.Properties, 2, "load and $schema")
}
