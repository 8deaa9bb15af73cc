package proxy

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// odd answers with the status in the path.
func odd(t *testing.T) string {
	return listening(t, func(c net.Conn) {
		b := bufio.NewReader(c)
		for {
			r, err := http.ReadRequest(b)
			if err != nil {
				return
			}
			status := r.URL.Path[1:]
			if _, err := strconv.Atoi(status); err != nil {
				status = "200"
			}
			_, _ = io.WriteString(c, "HTTP/1.1 "+status+" Odd\r\nContent-Length: 0\r\n\r\n")
		}
	})
}

// listening starts a server that handles each connection, and then closes it.
func listening(t *testing.T, handle func(c net.Conn)) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var running sync.WaitGroup
	running.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			stop := context.AfterFunc(t.Context(), func() { _ = c.Close() })
			running.Go(func() {
				defer stop()
				defer c.Close()
				handle(c)
			})
		}
	})
	t.Cleanup(running.Wait)
	t.Cleanup(func() { _ = l.Close() })
	return "http://" + l.Addr().String()
}

// TestRoute_OddStatus checks that a status that HTTP does not have is the fault of the upstream.
func TestRoute_OddStatus(t *testing.T) {
	g := gateway(t, TableOptions{Routes: []Route{{Match: "/", Upstream: alone(t, odd(t))}}}).URL
	for path, want := range map[string]int{"/099": http.StatusBadGateway, "/000": http.StatusBadGateway, "/999": 999, "/600": 600} {
		resp, err := http.Get(g + path)
		require.NoError(t, err, path)
		_ = resp.Body.Close()
		assert.Equal(t, want, resp.StatusCode, path)
	}
}
