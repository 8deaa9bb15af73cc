package accesslog

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func closed(t *testing.T, w *Writer) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	require.NoError(t, w.Close(ctx))
}

func TestLog(t *testing.T) {
	var to bytes.Buffer
	w := NewWriter(&to)
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/orders/7?token=secret", nil)
	e := Entry{
		Began: time.Now(), Took: 1500 * time.Microsecond, Request: r, Client: "192.0.2.1", Status: 429, Sent: 18,
		Route: "/orders/{id}", Upstream: "orders", Policy: "per-client", Decision: "rejected", Key: "secret", Fault: errors.New("why"),
	}
	New(w, Options{Key: func(string) string { return "#hash" }}).Write(&e)
	New(w, Options{Query: true, Key: func(key string) string { return key }}).Write(&e)
	closed(t, w)
	lines := strings.Split(strings.TrimSpace(to.String()), "\n")
	require.Len(t, lines, 2)
	assert.NotContains(t, lines[0], "secret")
	assert.Contains(t, lines[0], `"key":"#hash"`)
	var line map[string]any
	require.NoError(t, json.Unmarshal([]byte(lines[1]), &line))
	delete(line, "time")
	assert.Equal(t, map[string]any{
		"level": "INFO", "msg": "request", "client": "192.0.2.1", "method": "GET", "host": "example.com", "path": "/orders/7",
		"query": "token=secret", "protocol": "HTTP/1.1", "route": "/orders/{id}", "status": 429.0, "seconds": 0.0015, "bytes": 18.0,
		"upstream": "orders", "policy": "per-client", "decision": "rejected", "key": "secret", "error": "why",
	}, line)
}

// TestLog_Hostile checks that a request cannot make lines of its own, or very long ones.
func TestLog_Hostile(t *testing.T) {
	var to bytes.Buffer
	w := NewWriter(&to)
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
	r.URL.Path = "/a\n{\"msg\":\"request\"}\x00\x1b[31m\xff" + strings.Repeat("x", 1<<20)
	r.Method, r.Host = "GET\r\nX", strings.Repeat("h", 1<<20)
	New(w, Options{}).Write(&Entry{Request: r})
	closed(t, w)
	assert.Equal(t, 1, strings.Count(to.String(), "\n"))
	assert.Less(t, to.Len(), 4096)
	assert.NotContains(t, to.String(), "\x1b")
	assert.True(t, json.Valid(to.Bytes()))
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
	_, _ = w.Write([]byte("lost\n"))
	require.Eventually(t, func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.dropped == 1
	}, 10*time.Second, time.Millisecond)
	_, _ = w.Write([]byte("kept\n"))
	closed(t, w)
	assert.Contains(t, to.to.String(), "kept\n")
	assert.Contains(t, to.to.String(), `"dropped":1`)
}
