package forwarded_test

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/weir-go/weir/transport/internal/forwarded"
)

func TestClient(t *testing.T) {
	proxy, inside := netip.MustParseAddr("10.0.0.1"), netip.MustParsePrefix("10.0.0.0/8")
	for _, c := range []struct {
		lines   []string
		rfc7239 bool
		want    string
	}{
		{nil, false, "10.0.0.1"},
		{[]string{"192.0.2.7, 192.0.2.1"}, false, "192.0.2.1"},
		{[]string{"192.0.2.1", "10.0.0.3, ,10.0.0.2"}, false, "192.0.2.1"},
		{[]string{"192.0.2.1, unknown, 10.0.0.2"}, false, "10.0.0.2"},
		{[]string{`for=192.0.2.7, for="[2001:db8::1]:4711";proto=https`}, true, "2001:db8::1"},
		{[]string{`for="192.0.2.7, for=192.0.2.1`}, true, "10.0.0.1"}, // a quote too many
	} {
		assert.Equal(t, c.want, forwarded.Client(proxy, c.lines, c.rfc7239, inside.Contains).String(), c.lines)
	}
}

func TestParseAddress(t *testing.T) {
	for s, want := range map[string]string{
		"192.0.2.1": "192.0.2.1", "192.0.2.1:80": "192.0.2.1", "2001:db8::1": "2001:db8::1", "[2001:db8::1]:80": "2001:db8::1",
		"::ffff:192.0.2.1": "192.0.2.1", "fe80::1%eth0": "fe80::1", "": "invalid IP", "host:80": "invalid IP", "[192.0.2.1]": "invalid IP",
	} {
		_, addr := forwarded.ParseAddress(s)
		assert.Equal(t, want, addr.String(), s)
	}
}
