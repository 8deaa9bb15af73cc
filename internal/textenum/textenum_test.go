package textenum_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/textenum"
)

type color uint8

func TestTexts(t *testing.T) {
	colors := textenum.Texts[color]{Package: "paint", Type: "Color", Texts: []string{"red", "green"}}
	for v, text := range map[color]string{0: "red", 1: "green"} {
		assert.True(t, colors.Has(v))
		assert.Equal(t, text, colors.String(v))
		marshaled, err := colors.Marshal(v)
		require.NoError(t, err)
		assert.Equal(t, text, string(marshaled))
		back := color(9)
		require.NoError(t, colors.Unmarshal(&back, marshaled))
		assert.Equal(t, v, back)
	}

	assert.False(t, colors.Has(2))
	assert.Equal(t, "Color(2)", colors.String(2))
	_, err := colors.Marshal(2)
	require.EqualError(t, err, `paint: Color must be one of red, green, got "Color(2)"`)
	require.ErrorIs(t, err, weir.ErrInvalidOptions)
	v := color(1)
	require.EqualError(t, colors.Unmarshal(&v, []byte("Red")), `paint: Color must be one of red, green, got "Red"`)
	assert.Equal(t, color(1), v, "an error changes nothing")

	colors.AnyCase = true
	require.NoError(t, colors.Unmarshal(&v, []byte("RED")))
	assert.Equal(t, color(0), v)
}
