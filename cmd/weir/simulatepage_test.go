//go:build unix

package main

import (
	"flag"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/reload"
	"github.com/weir-go/weir/simulate"
)

// The page names every flag, its load file is right, and so are the names of its expectations.
func TestSimulatePage(t *testing.T) {
	page := read(t, "../../docs/simulate.md")
	c := &command{kinds: reload.NewKinds()}
	c.simulateFlags(new(simulation)).VisitAll(func(f *flag.Flag) {
		if f.Name != "strict" && !slices.Contains(reload.Registrations(), f.Name) {
			assert.Regexp(t, "[` ]-"+f.Name+"[` ]", page)
		}
	})
	blocks := fenced(page, "yaml")
	require.Len(t, blocks, 1)
	s, err := simulate.ParseScenario("load.yaml", []byte(blocks[0]))
	require.NoError(t, err)
	s.Config = simulate.File("", nil, nil)
	assert.NoError(t, s.Validate())

	_, metrics, ok := strings.Cut(page, "\n- counts: ")
	require.True(t, ok)
	metrics, _, _ = strings.Cut(metrics, "\n\n")
	names := regexp.MustCompile("`([a-z][^`]*)`").FindAllStringSubmatch(metrics, -1)
	assert.Greater(t, len(names), 25)
	for _, name := range names {
		if name[1] == "wait" { // stands for the same of wait
			continue
		}
		value := "0"
		if strings.HasPrefix(name[1], "latency") {
			value = "1s"
		}
		_, err := simulate.ParseExpectation(name[1] + " = " + value)
		assert.NoError(t, err)
	}
}
