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
	r := open(t, nil)
	most, long := strings.Repeat("x", 256), strings.Repeat("x", 1<<24)
	require.NoError(t, r.Define("p", with()))
	require.NoError(t, r.Define(most, with()))
	getInstance(t, r, "p", most)

	begins := `"` + strings.Repeat("x", 60) + `"… has 16777216 bytes, must have at most 256`
	_, err := r.Get(long)
	require.ErrorIs(t, err, registry.ErrNotDefined)
	require.EqualError(t, err, `registry: not defined: "`+strings.Repeat("x", 60)+`…"`)
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
	} {
		require.Error(t, err)
		assert.Less(t, len(err.Error()), 200)
	}
	assert.Equal(t, 2, r.Definitions())
}

func TestDefine(t *testing.T) {
	r := open(t, nil)
	var first, second numbered
	assert.Error(t, r.Define("", first.build), "PR01")
	assert.ErrorContains(t, r.Define("orders", nil), "orders")
	_, err := r.Get("orders")
	assert.ErrorIs(t, err, registry.ErrNotDefined, "PR19")
	assert.ErrorContains(t, err, "orders")

	assert.False(t, r.Defined("orders"))
	require.NoError(t, r.Define("orders", first.build))
	assert.True(t, r.Defined("orders"))
	assert.ErrorIs(t, r.Define("orders", second.build), registry.ErrDefined, "PR08")
	for range 3 {
		get(t, r, "orders")
	}
	assert.Equal(t, 1, first.made(), "PR04")
	assert.Zero(t, second.made())
	_, err = r.GetInstance("payments", "eu")
	assert.ErrorIs(t, err, registry.ErrNotDefined)
	assert.Equal(t, 1, r.Definitions(), "asking for what is not there leaves nothing behind")
}

func TestGetOrDefine(t *testing.T) {
	r := open(t, nil)
	var first, second numbered
	for range 3 {
		p, err := r.GetOrDefine("orders", first.build)
		require.NoError(t, err, "PR15")
		assert.Equal(t, 1, versionOf(t, p))
	}
	p, err := r.GetOrDefine("orders", second.build)
	require.NoError(t, err)
	assert.Same(t, get(t, r, "orders"), p)
	assert.Equal(t, 1, first.made())
	assert.Zero(t, second.made())

	_, err = r.GetOrDefine("", first.build)
	assert.Error(t, err)
	_, err = r.GetOrDefine("payments", nil)
	assert.Error(t, err)
	_, err = r.GetOrDefine("failing", func(*registry.Builder) error { return errBoom })
	assert.ErrorIs(t, err, errBoom)
}

func TestBuilder_NameAndInstance(t *testing.T) {
	r := open(t, nil)
	var seen []string
	p := define(t, r, "orders", func(b *registry.Builder) error {
		seen = append(seen, b.Name+"/"+b.Instance)
		return nil
	})
	_, err := r.GetInstance("orders", "eu")
	require.NoError(t, err)
	assert.Equal(t, []string{"orders/", "orders/eu"}, seen, "PR06")
	assert.Equal(t, "orders", p.Name())
	assert.Empty(t, p.Instance())
}
