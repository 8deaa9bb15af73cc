package goroutine_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/weir-go/weir/internal/goroutine"
)

func TestID(t *testing.T) {
	here := goroutine.ID()
	assert.NotZero(t, here)
	assert.Equal(t, here, goroutine.ID())
	there := make(chan uint64)
	go func() { there <- goroutine.ID() }()
	assert.NotEqual(t, here, <-there)
}
