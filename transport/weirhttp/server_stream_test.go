package weirhttp

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/strategies/timeout"
)

// wrapped returns h in all middleware of the package.
func wrapped(t testing.TB, h http.Handler) http.Handler {
	p := weir.Must(pipeline.New("t", timeout.New(time.Minute, nil)))
	l := weir.Must(NewLimits(&LimitsOptions{
		Headers: Draft11,
		Global:  Policy{Limit: Of(concurrency(t, 10, 0)), Timeout: time.Minute},
		Policies: map[string]Policy{
			"bucket": {Limit: Of(bucket(t, 1000))}, "pipeline": Policy{Limit: ByPipeline(p)},
		},
	}))
	return Measure(discardRecorder{}, nil)(Through(p, nil)(l.Handler(h, "pipeline", "bucket")))
}

func TestServer_ServerSentEvents(t *testing.T) {
	versions(t, func(t *testing.T, http2 bool) {
		next, gone := make(chan string), make(chan struct{})
		s := serve(t, wrapped(t, handler(func(w http.ResponseWriter, r *http.Request) {
			defer close(gone)
			w.Header().Set("Content-Type", "text/event-stream")
			f, ok := w.(http.Flusher)
			assert.True(t, ok)
			f.Flush()
			for {
				select {
				case text := <-next:
					fmt.Fprintf(w, "data: %s\n\n", text)
					assert.NoError(t, http.NewResponseController(w).Flush())
				case <-r.Context().Done():
					return
				}
			}
		})), http2)
		response, err := s.Client().Do(request(t, s, nil))
		require.NoError(t, err)
		defer response.Body.Close()
		lines := bufio.NewReader(response.Body)
		for _, text := range []string{"one", "two"} {
			next <- text
			line, err := lines.ReadString('\n')
			require.NoError(t, err)
			assert.Equal(t, "data: "+text+"\n", line, "at once, not when all is done")
			_, _ = lines.ReadString('\n')
		}
		response.Body.Close()
		<-gone
	})
}

// upgrade upgrades a connection as a client of a WebSocket does.
func upgrade(t *testing.T, s *pipeServer) {
	conn := s.dial()
	defer conn.Close()
	fmt.Fprintf(conn, "GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
	in := bufio.NewReader(conn)
	response, err := http.ReadResponse(in, nil)
	require.NoError(t, err)
	defer response.Body.Close()
	assert.Equal(t, 101, response.StatusCode)
	fmt.Fprintf(conn, "hello\n")
	line, err := in.ReadString('\n')
	require.NoError(t, err)
	assert.Equal(t, "you said hello\n", line)
}

func proxyTo(t testing.TB, s *pipeServer) *httputil.ReverseProxy {
	u, err := url.Parse(s.URL)
	require.NoError(t, err)
	return &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(u) }, Transport: s.client.Transport}
}

// An answer, a rejection and an upgraded connection go through the middleware around a proxy and through a proxy in
// front of the middleware.
func TestServer_ReverseProxyInFrontAndBehind(t *testing.T) {
	echo := handler(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upgrade") == "" {
			body, _ := io.ReadAll(r.Body)
			_, _ = w.Write(body)
			return
		}
		conn, rw, err := http.NewResponseController(w).Hijack()
		if !assert.NoError(t, err) {
			return
		}
		defer conn.Close()
		fmt.Fprintf(rw, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
		_ = rw.Flush()
		line, _ := rw.ReadString('\n')
		fmt.Fprintf(rw, "you said %s", line)
		_ = rw.Flush()
	})
	limits := weir.Must(NewLimits(&LimitsOptions{Policies: map[string]Policy{"p": {Limit: Of(bucket(t, 3))}}}))
	backend := serve(t, limits.Handler(wrapped(t, echo), "p"), false)
	front := serve(t, wrapped(t, proxyTo(t, backend)), false)

	status, body := do(t, front, request(t, front, strings.NewReader("hello")))
	assert.Equal(t, 200, status)
	assert.Equal(t, "hello", body)
	upgrade(t, front)
	do(t, front, request(t, front, nil))

	response, err := front.Client().Do(request(t, front, nil))
	require.NoError(t, err)
	defer response.Body.Close()
	assert.Equal(t, 429, response.StatusCode)
	assert.NotEmpty(t, response.Header.Get("Retry-After"))
	text, _ := io.ReadAll(response.Body)
	assert.Equal(t, "Too Many Requests\n", string(text))
}

// A handler finds Flush and Hijack if the writers of net/http have them.
func TestResponse_HasWhatTheServersHave(t *testing.T) {
	everyWrapping(t, time.Minute, func(t *testing.T, wrap func(http.Handler) http.Handler, http2 bool) {
		s := serve(t, wrap(handler(func(w http.ResponseWriter, _ *http.Request) {
			_, flushes := w.(http.Flusher)
			_, reports := w.(interface{ FlushError() error })
			_, hijacks := w.(http.Hijacker)
			_, writes := w.(io.StringWriter)
			_, notifies := w.(http.CloseNotifier) //nolint:staticcheck // it is still asked for
			duplex := http.NewResponseController(w).EnableFullDuplex() == nil
			fmt.Fprint(w, flushes, reports, hijacks, writes, notifies, duplex)
		})), http2)
		_, body := do(t, s, request(t, s, nil))
		assert.Equal(t, fmt.Sprint(true, true, !http2, true, true, true), body)
	})
}
