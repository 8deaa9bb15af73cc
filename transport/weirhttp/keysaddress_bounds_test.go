package weirhttp

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
)

func TestClientAddress_BoundsTheHeader(t *testing.T) {
	trusted, err := ParseTrusted("10.0.0.0/8")
	require.NoError(t, err)
	long := strings.Repeat("x", maxForwardedBytes)
	for header, lines := range map[string]map[string]string{
		"X-Forwarded-For": {
			long + ", 192.0.2.1":                     "192.0.2.1",
			long + "192.0.2.1, 10.0.0.2":             "10.0.0.2",
			strings.Repeat(",", 2*maxForwardedBytes): "10.0.0.1",
			"192.0.2.1" + strings.Repeat(" ", 20000): "10.0.0.1",
			"192.0.2.1":                              "192.0.2.1",
		},
		"Forwarded": {
			"for=192.0.2.2;by=" + long + ",for=192.0.2.1": "10.0.0.1",
			"for=192.0.2.2,for=192.0.2.1":                 "192.0.2.1",
		},
	} {
		key := weir.Must(ClientAddress(&AddressOptions{Trusted: trusted, Header: header}))
		for line, want := range lines {
			r := httptest.NewRequest(http.MethodGet, "/", nil)
			r.RemoteAddr = "10.0.0.1:1"
			r.Header.Set(header, line)
			assert.Equal(t, want, key(r), "%s of %d bytes", header, len(line))
			r.Header[header] = []string{"for=192.0.2.3", line}
			if header == "Forwarded" {
				assert.Equal(t, want, key(r), "with a line before")
			}
		}
	}
}

func TestClientAddress_TranslatedIPv4(t *testing.T) {
	key := weir.Must(ClientAddress(nil))
	for addr, want := range map[string]string{
		"[64:ff9b::c000:201]:1":   "192.0.2.1",
		"[64:ff9b::c000:202]:1":   "192.0.2.2",
		"[64:ff9b:1::c000:202]:1": "64:ff9b:1::/64",
	} {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.RemoteAddr = addr
		assert.Equal(t, want, key(r))
	}
}

func TestClientAddress_TrustUnix(t *testing.T) {
	for trust, want := range map[bool]string{false: "unknown", true: "192.0.2.1"} {
		keys := make(chan string, 2)
		key := weir.Must(ClientAddress(&AddressOptions{TrustUnix: trust}))
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
	assert.Equal(t, "unknown", weir.Must(ClientAddress(&AddressOptions{TrustUnix: true}))(r), "not over a Unix socket")
}
