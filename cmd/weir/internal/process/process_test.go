package process

import (
	"io"
	"runtime"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A process with a small heap seldom collects garbage.
func TestNew_HeapFloor(t *testing.T) {
	p, err := New(Options{Stdout: io.Discard, Stderr: io.Discard}, Kind{Name: "test", Section: "test"})
	require.NoError(t, err)
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	assert.Greater(t, m.NextGC, uint64(2*heapFloor))
	p.Close()
}
