package logs

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func closed(t *testing.T, w *Writer) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	require.NoError(t, w.Close(ctx))
}

// A stuck is an output that takes nothing until it is let go.
type stuck struct {
	entered, letGo chan struct{}
	once           sync.Once
	mu             sync.Mutex
	to             bytes.Buffer
}

func (s *stuck) Write(p []byte) (int, error) {
	s.once.Do(func() { close(s.entered) })
	<-s.letGo
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.to.Write(p)
}

// TestWriter_Stuck checks that an output that takes nothing holds up no request, and that what was dropped is told.
func TestWriter_Stuck(t *testing.T) {
	to := &stuck{entered: make(chan struct{}), letGo: make(chan struct{})}
	w := NewWriter(to)
	line := []byte(strings.Repeat("x", 1023) + "\n")
	_, _ = w.Write(line)
	<-to.entered
	for range 3 * maxBuffered / len(line) {
		_, err := w.Write(line)
		require.NoError(t, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, w.Close(ctx), context.Canceled, "closing does not wait for it either")
	close(to.letGo)
	closed(t, w)
	assert.Contains(t, to.to.String(), `"dropped":2048`)
	assert.Equal(t, 1+1024+1, strings.Count(to.to.String(), "\n"))
	_, err := w.Write(line)
	assert.NoError(t, err, "after the end")
}

// A failing is an output that fails until it is mended.
type failing struct {
	err error
	to  bytes.Buffer
}

func (f *failing) Write(p []byte) (int, error) {
	if err := f.err; err != nil {
		f.err = nil
		return 0, err
	}
	return f.to.Write(p)
}

// TestWriter_Fails checks that lines that could not be written, as on a full disk, are told later.
func TestWriter_Fails(t *testing.T) {
	to := &failing{err: errors.New("no space left on device")}
	w := NewWriter(to)
	w.dropped = 7 // before
	_, _ = w.Write([]byte("lost\n"))
	require.Eventually(t, func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.dropped == 8
	}, 10*time.Second, time.Millisecond)
	_, _ = w.Write([]byte("kept\n"))
	closed(t, w)
	assert.Contains(t, to.to.String(), "kept\n")
	assert.Contains(t, to.to.String(), `"dropped":8`)
}
