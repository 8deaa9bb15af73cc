package process

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/tools/testserver"

	"github.com/weir-go/weir/cmd/weir/internal/fileconfig"
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

// TestAdminServer_HeaderTimeout has a client that sends the half of a header.
func TestAdminServer_HeaderTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := testserver.ServePipes(t, adminServer(http.NotFoundHandler())).Dial()
		began := time.Now()
		_, err := io.WriteString(c, "GET / HTTP/1.1\r\nHost: a\r\n")
		require.NoError(t, err)
		_, err = c.Read(make([]byte, 1))
		require.ErrorIs(t, err, io.EOF)
		assert.Equal(t, 5*time.Second, time.Since(began))
	})
}

// TestAdminHandler_Host checks that no page of another site can read what the admin listener on the loopback interface has.
func TestAdminHandler_Host(t *testing.T) {
	p, err := New(Options{Stdout: io.Discard, Stderr: io.Discard}, Kind{Name: "test", Section: "test"})
	require.NoError(t, err)
	defer p.Close()
	var inForce atomic.Pointer[fileconfig.Common]
	inForce.Store(new(fileconfig.Common))
	h := p.adminHandler(&inForce, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	ask := func(path, host string, listener net.IP) int {
		r := httptest.NewRequestWithContext(context.WithValue(t.Context(), http.LocalAddrContextKey, &net.TCPAddr{IP: listener}), http.MethodGet, path, nil)
		r.Host = host
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w.Code
	}
	machine, err := os.Hostname()
	require.NoError(t, err)
	for host, want := range map[string]int{
		"": 200, "localhost": 200, "LocalHost.:9900": 200, "weir.localhost": 200, "127.0.0.1": 200, "127.0.0.1:1": 200, "[::1]": 200, "[::1]:9900": 200, machine: 200,
		"evil.example": 403, "evil.example:9900": 403, "127.0.0.1.evil.example": 403, "localhost.evil.example": 403, "127.0.0.1:x:y": 403,
	} {
		for _, path := range []string{"/", "/metrics", "/live"} {
			assert.Equal(t, want, ask(path, host, net.IPv6loopback), "%s %s", host, path)
		}
		assert.Equal(t, 200, ask("/", host, net.IPv4(10, 0, 0, 1)), "another interface")
	}
}
