package gatewayconfig

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/cmd/weir/internal/fileconfig"
	"github.com/weir-go/weir/transport/weirhttp"
)

func TestAddress(t *testing.T) {
	for text, want := range map[string]string{
		"http://127.0.0.1:9001":         "http://127.0.0.1:9001",
		"https://[2001:db8::7]/base/":   "https://[2001:db8::7]/base",
		"http://orders.internal":        "http://orders.internal",
		"http://[fe80::1%25eth0]:8080/": "http://[fe80::1%25eth0]:8080",
	} {
		var a Address
		require.NoError(t, a.UnmarshalText([]byte(text)), text)
		assert.Equal(t, want, a.String())
	}
	for _, text := range []string{
		"", "127.0.0.1:9001", "ftp://a", "http://", "http://a:0", "http://a:", "http://a:99999", "http://[::1", "http://[a:b]",
		"http://u:p@a", "http://a?b", "http://a#b", "http://a/../b", "http://a/%2e%2e/b", "http:///a", "http://a b",
	} {
		var a Address
		assert.Error(t, a.UnmarshalText([]byte(text)), text)
	}
}

func TestGateway_WithDefaults(t *testing.T) {
	g := Gateway{Common: fileconfig.Common{Admin: ":9901"}, IdleTimeout: -1, Policies: map[string]Policy{"a": {}}, Upstreams: map[string]Upstream{"b": {}}, Shadow: true}
	full := g.WithDefaults()
	assert.Equal(t, "127.0.0.1:9901", full.Admin, "an admin listener is on the loopback interface unless the file says otherwise")
	assert.Equal(t, time.Duration(0), full.IdleTimeout, "off")
	assert.Equal(t, ":8080", full.Listen)
	assert.Equal(t, Policy{Cost: 1, Body: PlainBody, Shadow: true, Headers: new(weirhttp.NoHeaders)}, full.Policies["a"])
	assert.Equal(t, DefaultFailures, full.Upstreams["b"].Health.ConsecutiveFailures)
	assert.Equal(t, Policy{}, g.Policies["a"], "the maps of g stay as they are")
}
