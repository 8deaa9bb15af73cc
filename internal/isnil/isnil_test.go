package isnil_test

import (
	"io"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/weir-go/weir/internal/isnil"
)

func TestValue(t *testing.T) {
	var pointer *int
	var function func()
	var reader io.Reader
	var slice []int
	var table map[string]int
	for _, v := range []any{nil, pointer, function, reader} {
		assert.True(t, isnil.Value(v), "%T", v)
	}
	for _, v := range []any{0, "", new(int), func() {}, slice, table} {
		assert.False(t, isnil.Value(v), "%T", v)
	}
}
