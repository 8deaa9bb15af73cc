package registry_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/registry"
)

// Names have a bound, and errors show the beginning of one that is too long.
func TestRegistry_LongNames(t *testing.T) {
	r := open(t, &registry.Options{Instance: func(name string) string {
		if name == "far" {
			return strings.Repeat("i", 1<<24)
		}
		return ""
	}})
	most, long := strings.Repeat("x", 256), strings.Repeat("x", 1<<24)
	require.NoError(t, r.Define("p", with()))
	require.NoError(t, r.Define(most, with()))
	get(t, r, most)
	getInstance(t, r, "p", most)

	begins := `"` + strings.Repeat("x", 60) + `"… has 16777216 bytes, must have at most 256`
	_, err := r.Get(long)
	require.ErrorIs(t, err, registry.ErrNotDefined)
	require.EqualError(t, err, "registry: not defined: the name "+begins)
	_, err = r.GetInstance("p", long)
	require.EqualError(t, err, "registry: the name of the instance "+begins)
	_, err = r.GetInstance(long, "eu")
	require.ErrorIs(t, err, registry.ErrNotDefined)
	for _, err := range []error{
		r.Define(long, with()),
		r.Apply(t.Context(), registry.Change{Define: builds{long: with()}}),
		r.Define(long, nil),
	} {
		require.EqualError(t, err, "registry: the name of the pipeline "+begins)
	}
	for _, err := range []error{
		r.Remove(t.Context(), long),
		r.Reload(t.Context(), long),
		r.Define("far", with()),
		r.Apply(t.Context(), registry.Change{Define: builds{"far": with()}}),
	} {
		require.Error(t, err)
		assert.Less(t, len(err.Error()), 200)
	}
	assert.False(t, r.Defined("far"))
	assert.Equal(t, 2, r.Definitions())
}
