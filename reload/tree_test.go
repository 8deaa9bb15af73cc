package reload_test

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/registry"
	"github.com/weir-go/weir/reload"
)

// A tree is a section that contains itself, with values of any kind.
type tree struct {
	Name   string          `yaml:"name"`
	Labels map[string]any  `yaml:"labels,omitempty"`
	Any    any             `yaml:"any,omitempty"`
	Leaves []tree          `yaml:"leaves,omitempty"`
	Named  map[string]tree `yaml:"named,omitempty"`
	Twin   *tree           `yaml:"twin,omitempty"`
	Limits []string        `yaml:"limits,omitempty" reload:"limiter"`
}

func treeKinds() *reload.Kinds {
	k := reload.NewKinds()
	reload.RegisterSection(k, "tree", reload.Section[tree]{Doc: "A tree."})
	reload.RegisterSection(k, "wood", reload.Section[struct {
		Trees []tree `yaml:"trees"`
	}]{Doc: "Several."})
	return k
}

func TestSection_Recursive(t *testing.T) {
	const text = `limiters: {l: {concurrency: {permit_limit: 1}}}
allow_empty: true
tree:
  name: a
  labels: {whole: 5, text: "5", none: null, list: [1.5, true, {x: y}], yes: true}
  any: {}
  leaves:
    - name: b
      twin: {name: c, limits: [l]}
  named: {d: {name: e}}
`
	f, err := reload.Parse("f", []byte(text), treeKinds())
	require.NoError(t, err)
	got, ok := reload.SectionOf[tree](f, "tree")
	require.True(t, ok)
	assert.Equal(t, tree{
		Name:   "a",
		Labels: map[string]any{"whole": 5.0, "text": "5", "none": nil, "list": []any{1.5, true, map[string]any{"x": "y"}}, "yes": true},
		Any:    map[string]any{},
		Leaves: []tree{{Name: "b", Twin: &tree{Name: "c", Limits: []string{"l"}}}},
		Named:  map[string]tree{"d": {Name: "e"}},
	}, got)

	schema, err := treeKinds().Schema()
	require.NoError(t, err)
	require.NoError(t, checkSchema(t, schema, []byte(text)))

	const wrong = `allow_empty: true
tree:
  name: a
  labels: {n: .nan, o: 010}
  leaves: [{name: b, twin: {naem: c, limits: [x]}}]
`
	_, err = reload.Parse("f", []byte(wrong), treeKinds())
	require.EqualError(t, err, `f:4:15: tree.labels.n: must be a number in decimal digits, found .nan
f:4:24: tree.labels.o: must be a number in decimal digits, found 010
f:5:28: tree.leaves[0].twin: name is missing
f:5:29: tree.leaves[0].twin: unknown field "naem", did you mean "name"?
f:5:47: tree.leaves[0].twin.limits[0]: there is no limiter "x", the file has no limiters`)
	require.Error(t, checkSchema(t, schema, []byte(wrong)))
}

// Read has the content in place of the file, and its errors keep what is in force.
func TestOptions_Read(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var content atomic.Pointer[func() ([]byte, error)]
		is := func(text string, err error) {
			read := func() ([]byte, error) { return []byte(text), err }
			content.Store(&read)
		}
		is(windows(1), nil)
		read := func() ([]byte, error) { return (*content.Load())() }
		w := &watched{registry: registry.New(nil), path: "the name"}
		var err error
		w.watcher, err = reload.Start(t.Context(), w.registry, w.path, &reload.Options{Read: read, Logger: slog.New(slog.DiscardHandler)})
		require.NoError(t, err)
		defer func() {
			w.watcher.Stop()
			assert.NoError(t, w.registry.Close(context.Background()))
		}()
		p, err := w.registry.Get("orders")
		require.NoError(t, err)
		require.NoError(t, try(p))
		require.Error(t, try(p))

		wrong := &reload.FileError{File: "other.yaml", Problems: []reload.Problem{{Line: 2, Column: 3, Message: "it is wrong"}}}
		is("", wrong)
		pass(5 * time.Second)
		status := w.watcher.Status()
		require.ErrorIs(t, status.Err, wrong)
		assert.Equal(t, "other.yaml:2:3: it is wrong", status.Err.Error())
		assert.Equal(t, 1, status.Failures, "the same error is one failure")
		require.Error(t, try(p), "what was in force stays")

		panics := func() ([]byte, error) { panic("ouch") }
		content.Store(&panics)
		pass(5 * time.Second)
		require.ErrorContains(t, w.watcher.Status().Err, "ouch")

		is(windows(2), nil)
		pass(5 * time.Second)
		require.NoError(t, w.watcher.Status().Err)
		require.NoError(t, try(p))

		is("", os.ErrNotExist)
		require.ErrorIs(t, w.watcher.Reload(t.Context()), os.ErrNotExist)
		is("", errors.New("away"))
		_, err = reload.Start(t.Context(), w.registry, "another name", &reload.Options{Read: read})
		require.EqualError(t, err, "away")
	})
}
