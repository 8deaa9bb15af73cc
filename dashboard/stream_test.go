package dashboard

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A pipeListener is a net.Listener whose connections are pipes, so that a server runs inside a bubble of synctest.
type pipeListener struct {
	connections chan net.Conn
	closed      chan struct{}
	once        sync.Once
}

func newPipeListener() *pipeListener {
	return &pipeListener{connections: make(chan net.Conn), closed: make(chan struct{})}
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.connections:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *pipeListener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

func (l *pipeListener) Addr() net.Addr { return &net.UnixAddr{Name: "pipe"} }

func (l *pipeListener) dial() net.Conn {
	client, server := net.Pipe()
	l.connections <- server
	return client
}

// serve serves h, and returns a function that opens a connection and sends a request for path.
func serve(t *testing.T, server *http.Server) (open func(path string) net.Conn) {
	l := newPipeListener()
	go func() { _ = server.Serve(l) }()
	t.Cleanup(func() { _ = server.Close() })
	return func(path string) net.Conn {
		c := l.dial()
		_, err := io.WriteString(c, "GET "+path+" HTTP/1.1\r\nHost: example.com\r\nAccept: text/event-stream\r\n\r\n")
		require.NoError(t, err)
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
}

// A client reads a stream.
type client struct {
	body *bufio.Scanner
	resp *http.Response
}

func newClient(t *testing.T, c net.Conn) *client {
	t.Helper()
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	require.NoError(t, err)
	t.Cleanup(func() { _ = resp.Body.Close() })
	s := bufio.NewScanner(resp.Body)
	s.Buffer(nil, 1<<20)
	return &client{s, resp}
}

// next returns the name and data of the next event, or "" if there is none.
func (c *client) next() (event, data string) {
	for c.body.Scan() {
		line := c.body.Text()
		if v, ok := strings.CutPrefix(line, "event: "); ok {
			event = v
		}
		if v, ok := strings.CutPrefix(line, "data: "); ok {
			return event, v
		}
	}
	return "", ""
}

func TestStream_SendsWhatHasChanged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t, nil)
		time.Sleep(2 * tick) // until the rates are known
		server := &http.Server{Handler: s.dashboard, WriteTimeout: time.Second, ReadTimeout: time.Second}
		c := newClient(t, serve(t, server)("/weir/stream?page=limiters&q=bucket"))
		h := c.resp.Header
		assert.Equal(t, "text/event-stream; charset=utf-8", h.Get("Content-Type"))
		assert.Equal(t, "no", h.Get("X-Accel-Buffering"))
		assert.Equal(t, "no-store, no-transform", h.Get("Cache-Control"))

		event, data := c.next()
		require.Equal(t, "section", event)
		var first fragment
		require.NoError(t, json.Unmarshal([]byte(data), &first))
		assert.Equal(t, "section-limiters", first.ID)
		assert.Contains(t, string(first.HTML), "bucket")
		began := time.Now()
		for range 100 { // long after the timeouts of the server
			event, _ = c.next()
			assert.Equal(t, "tick", event, "what has not changed is not sent again")
		}
		assert.Greater(t, time.Since(began), 3*time.Minute)

		s.execute(t.Context(), "orders", 2, nil)
		event, data = c.next()
		assert.Equal(t, "section", event)
		assert.Contains(t, data, "section-limiters")
		assert.EqualValues(t, 1, s.dashboard.streams.Load())
	})
}

func TestStream_ClosedClientFreesItsPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t, nil)
		server := &http.Server{Handler: s.dashboard}
		open := serve(t, server)
		for range 10 {
			conn := open("/stream")
			_, _ = newClient(t, conn).next()
			assert.EqualValues(t, 1, s.dashboard.streams.Load())
			_ = conn.Close()
			time.Sleep(tick)
			synctest.Wait()
			assert.Zero(t, s.dashboard.streams.Load())
		}
	})
}

func TestStream_SlowClientIsLetGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t, nil)
		server := &http.Server{Handler: s.dashboard}
		_ = serve(t, server)("/stream") // it reads nothing
		synctest.Wait()
		assert.EqualValues(t, 1, s.dashboard.streams.Load())
		w := s.get("/overview")
		assert.Equal(t, http.StatusOK, w.Code, "others do not wait for it")
		time.Sleep(writeTimeout + time.Second)
		synctest.Wait()
		assert.Zero(t, s.dashboard.streams.Load())
	})
}

func TestStream_RefusesWithAReason(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t, func(_ *scene, o *Options) { o.MaxStreams = 2 })
		server := &http.Server{Handler: s.dashboard}
		open := serve(t, server)
		var clients []*client
		for range 2 {
			clients = append(clients, newClient(t, open("/stream")))
		}
		c := newClient(t, open("/stream"))
		assert.Equal(t, http.StatusOK, c.resp.StatusCode, "a browser shows no text of an error")
		event, data := c.next()
		assert.Equal(t, "refused", event)
		assert.Equal(t, `"There are 2 pages with live updates, which is the most. This page asks every 5 s instead."`, data)
		event, _ = c.next()
		assert.Empty(t, event, "and the answer ends")
		for _, other := range clients {
			event, _ = other.next()
			assert.NotEmpty(t, event)
		}
		assert.EqualValues(t, 2, s.dashboard.streams.Load())
	})
}

func TestStream_SwitchedOff(t *testing.T) {
	s := newScene(t, func(_ *scene, o *Options) { o.MaxStreams = -1 })
	w := s.get("/stream")
	assert.Contains(t, w.Body.String(), `"Live updates are switched off. This page asks every 5 s instead."`)
}

func TestStream_EndsAndCanBeOpenedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t, nil)
		server := &http.Server{Handler: s.dashboard}
		c := newClient(t, serve(t, server)("/stream"))
		began := time.Now()
		for {
			if event, _ := c.next(); event == "" {
				break
			}
		}
		assert.Equal(t, maxStreamAge, time.Since(began))
		assert.Zero(t, s.dashboard.streams.Load())
	})
}

// A server can shut down although pages are open.
func TestStream_CloseEndsIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t, nil)
		server := &http.Server{Handler: s.dashboard}
		server.RegisterOnShutdown(func() { _ = s.dashboard.Close() })
		c := newClient(t, serve(t, server)("/stream"))
		ended := make(chan string)
		go func() {
			last := ""
			for {
				event, _ := c.next()
				if event == "" {
					ended <- last
					return
				}
				last = event
			}
		}()
		time.Sleep(5 * time.Second)
		began := time.Now()
		require.NoError(t, server.Shutdown(t.Context()))
		assert.Less(t, time.Since(began), time.Second)
		assert.Equal(t, "closed", <-ended)
		require.NoError(t, s.dashboard.Close(), "again")
		assert.Equal(t, http.StatusOK, s.get("/overview").Code, "pages can still be read")
		assert.Contains(t, s.get("/stream").Body.String(), "The dashboard is closed.")
	})
}

// A writer that cannot flush buffers the stream until it ends, so it ends at once, and the page polls.
func TestStream_WriterWithoutFlush(t *testing.T) {
	s := newScene(t, nil)
	w := struct{ http.ResponseWriter }{httptest.NewRecorder()}
	s.dashboard.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/stream", nil))
	assert.Zero(t, s.dashboard.streams.Load())
}

func TestStream_ManyTabsConcurrentSafe(t *testing.T) {
	s := newScene(t, func(_ *scene, o *Options) { o.MaxStreams = 8 })
	server := httptest.NewServer(s.dashboard)
	defer server.Close()
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for range 2 { // load
		wg.Go(func() {
			for ctx.Err() == nil {
				s.execute(ctx, "orders", 20, errBoom)
				s.execute(withClient(ctx, "alice"), "api", 20, nil)
			}
		})
	}
	var tabs sync.WaitGroup
	for i := range 24 {
		tabs.Go(func() {
			page := allPages[i%8]
			r, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL+"/stream?page="+page, nil)
			assert.NoError(t, err)
			resp, err := server.Client().Do(r)
			if !assert.NoError(t, err) {
				return
			}
			defer func() { _ = resp.Body.Close() }()
			scanner := bufio.NewScanner(resp.Body)
			scanner.Buffer(nil, 1<<20)
			for scanner.Scan() {
				if line := scanner.Text(); line == "event: tick" || line == "event: refused" {
					return
				}
			}
			t.Error("neither a tick nor a refusal", scanner.Err())
		})
		tabs.Go(func() {
			resp, err := server.Client().Get(server.URL + "/overview.json")
			if assert.NoError(t, err) {
				assert.Equal(t, http.StatusOK, resp.StatusCode)
				_, _ = io.Copy(io.Discard, resp.Body)
				_ = resp.Body.Close()
			}
		})
	}
	tabs.Wait()
	cancel()
	wg.Wait()
	server.CloseClientConnections()
}
