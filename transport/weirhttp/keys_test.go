package weirhttp_test

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/transport/weirhttp"
)

func keyRequest(header ...string) *http.Request {
	r := httptest.NewRequest(http.MethodGet, "http://shop.example/orders/7", http.NoBody)
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Add(header[i], header[i+1])
	}
	return r
}

func TestHeader(t *testing.T) {
	key := weirhttp.Header("x-api-key")
	assert.Equal(t, "abc", key(keyRequest("X-Api-Key", "abc")))
	assert.Equal(t, weirhttp.AmbiguousKey, key(keyRequest("X-Api-Key", "abc", "X-Api-Key", "def")))
	assert.Equal(t, weirhttp.AmbiguousKey, key(keyRequest("X-Api-Key", "abc", "X-Api-Key", "abc")))
	assert.Empty(t, key(keyRequest()))
	assert.Equal(t, "shop.example", weirhttp.Header("host")(keyRequest()))
	huge := strings.Repeat("x", 1<<20)
	for _, key := range []weirhttp.Key{key, weirhttp.Subject(func(*http.Request) string { return huge }), weirhttp.Composite(key, key)} {
		assert.Len(t, key(keyRequest("X-Api-Key", huge)), len("sha256:")+64)
	}
}

func TestRoute(t *testing.T) {
	key := weirhttp.Route()
	assert.Empty(t, key(keyRequest()))
	var got string
	mux := http.NewServeMux()
	mux.HandleFunc("GET /orders/{id}", func(_ http.ResponseWriter, r *http.Request) { got = key(r) })
	mux.ServeHTTP(httptest.NewRecorder(), keyRequest())
	assert.Equal(t, "GET /orders/{id}", got)
}

func TestClientAddress(t *testing.T) {
	behind := &weirhttp.AddressOptions{Trusted: weir.Must(weirhttp.ParseTrusted("10.0.0.0/8")), Header: "cf-connecting-ip"}
	r := keyRequest("CF-Connecting-IP", "1.1.1.1, 198.51.100.7", "X-Forwarded-For", "192.0.2.9")
	for remote, want := range map[string]string{"10.0.0.1:1": "198.51.100.7", "192.0.2.1:80": "192.0.2.1", "@": "unknown"} {
		r.RemoteAddr = remote
		assert.Equal(t, want, weir.Must(weirhttp.ClientAddress(behind))(r))
	}
	r.RemoteAddr = "[2001:db8:1:2:3:4:5:6]:1234"
	assert.Equal(t, "2001:db8:1::/56", weir.Must(weirhttp.ClientAddress(&weirhttp.AddressOptions{IPv6Bits: 56}))(r))
	_, err := weirhttp.ClientAddress(&weirhttp.AddressOptions{IPv6Bits: -1})
	require.ErrorIs(t, err, weir.ErrInvalidOptions)
	_, err = weirhttp.ParseTrusted("nonsense")
	require.ErrorIs(t, err, weir.ErrInvalidOptions)
}

func TestClientAddress_TrustUnix(t *testing.T) {
	for trust, want := range map[bool]string{false: "unknown", true: "192.0.2.1"} {
		keys := make(chan string, 2)
		key := weir.Must(weirhttp.ClientAddress(&weirhttp.AddressOptions{TrustUnix: trust}))
		s := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { keys <- key(r) }))
		listener, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
		require.NoError(t, err)
		_ = s.Listener.Close()
		s.Listener = listener
		s.Start()
		t.Cleanup(s.Close)
		conn, err := net.Dial("unix", listener.Addr().String())
		require.NoError(t, err)
		t.Cleanup(func() { _ = conn.Close() })
		fmt.Fprint(conn, "GET / HTTP/1.1\r\nHost: x\r\nX-Forwarded-For: 192.0.2.7, 192.0.2.1\r\n\r\n")
		assert.Equal(t, want, <-keys)
		fmt.Fprint(conn, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
		assert.Equal(t, "unknown", <-keys)
	}
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.RemoteAddr, r.Header = "", http.Header{"X-Forwarded-For": {"192.0.2.1"}}
	assert.Equal(t, "unknown", weir.Must(weirhttp.ClientAddress(&weirhttp.AddressOptions{TrustUnix: true}))(r), "not over a Unix socket")
}
