package forwarded_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/transport/internal/forwarded"
)

// keyOf returns the key function of a transport whose requests are those of net/http.
func keyOf(o *forwarded.Options) func(r *http.Request) string {
	f := forwarded.NewFinder(o, http.CanonicalHeaderKey)
	return func(r *http.Request) string {
		text, addr := forwarded.ParseAddress(r.RemoteAddr)
		return f.Find(text, addr, false, func(header string) []string { return r.Header[header] })
	}
}

func trust(tb testing.TB, networks ...string) []netip.Prefix {
	tb.Helper()
	trusted, err := forwarded.ParseTrusted("test", networks)
	if err != nil {
		tb.Fatal(err)
	}
	return trusted
}

func addressRequest(remote, header string, lines ...string) *http.Request {
	r := httptest.NewRequest(http.MethodGet, "/", http.NoBody)
	r.RemoteAddr = remote
	for _, line := range lines {
		r.Header.Add(header, line)
	}
	return r
}

func TestFinder_OfTheConnection(t *testing.T) {
	for _, c := range []struct {
		remote, want string
		bits         int
	}{
		{remote: "192.0.2.1:1234", want: "192.0.2.1"},
		{remote: "192.0.2.1", want: "192.0.2.1"},
		{remote: "[::ffff:192.0.2.1]:1234", want: "192.0.2.1"},
		{remote: "[::ffff:1.2.3.4]:1234", want: "1.2.3.4"},
		{remote: "[2001:db8:1:2:3:4:5:6]:1234", want: "2001:db8:1:2::/64"},
		{remote: "[2001:db8:1:2:3:4:5:6]:1234", want: "2001:db8:1::/56", bits: 56},
		{remote: "[2001:db8:1:2:3:4:5:6]:1234", want: "2001:db8:1:2:3:4:5:6", bits: 128},
		{remote: "[fe80::1%eth0]:1234", want: "fe80::/64"},
		{remote: "@", want: "unknown"},
		{remote: "", want: "unknown"},
		{remote: "192.0.2.1:1:2", want: "unknown"},
		{remote: "[192.0.2.1]:80", want: "unknown"},
		{remote: "[2001:db8::1", want: "unknown"},
		{remote: "example.com:80", want: "unknown"},
	} {
		key := keyOf(&forwarded.Options{IPv6Bits: c.bits})
		r := addressRequest(c.remote, "X-Forwarded-For", "198.51.100.7")
		assert.Equal(t, c.want, key(r), c.remote)
	}
	assert.Equal(t, "192.0.2.1", keyOf(nil)(addressRequest("192.0.2.1:1", "X-Forwarded-For", "198.51.100.7")))
}

func TestFinder_BehindProxies(t *testing.T) {
	for _, c := range []struct {
		name, remote string
		lines        []string
		want         string
	}{
		{"no header", "10.0.0.1:1", nil, "10.0.0.1"},
		{"one", "10.0.0.1:1", []string{"198.51.100.7"}, "198.51.100.7"},
		{"not from a proxy", "203.0.113.9:1", []string{"198.51.100.7"}, "203.0.113.9"},
		{"made up in front", "10.0.0.1:1", []string{"1.1.1.1, 198.51.100.7"}, "198.51.100.7"},
		{"made up, as a trusted one", "10.0.0.1:1", []string{"10.0.0.9, 198.51.100.7"}, "198.51.100.7"},
		{"through two", "10.0.0.1:1", []string{"1.1.1.1, 198.51.100.7, 10.0.0.2"}, "198.51.100.7"},
		{"over several lines", "10.0.0.1:1", []string{"1.1.1.1", "198.51.100.7", "10.0.0.2"}, "198.51.100.7"},
		{"all trusted", "10.0.0.1:1", []string{"10.0.0.3, 10.0.0.2"}, "10.0.0.3"},
		{"empty ones", "10.0.0.1:1", []string{", 198.51.100.7,, ,", ""}, "198.51.100.7"},
		{"with a port", "10.0.0.1:1", []string{"198.51.100.7:5678"}, "198.51.100.7"},
		{"IPv6", "10.0.0.1:1", []string{"2001:db8::1"}, "2001:db8::/64"},
		{"IPv6 with a port", "10.0.0.1:1", []string{"[2001:db8::1]:5678"}, "2001:db8::/64"},
		{"IPv6 proxy", "[fd00::1]:1", []string{"198.51.100.7"}, "198.51.100.7"},
		{"IPv4 in IPv6", "[::ffff:10.0.0.1]:1", []string{"::ffff:198.51.100.7"}, "198.51.100.7"},
		{"nonsense", "10.0.0.1:1", []string{"1.1.1.1, nonsense, 10.0.0.2"}, "10.0.0.2"},
		{"nonsense last", "10.0.0.1:1", []string{"1.1.1.1, nonsense"}, "10.0.0.1"},
		{"a single trusted address", "172.16.0.5:1", []string{"198.51.100.7"}, "198.51.100.7"},
		{"its neighbour", "172.16.0.6:1", []string{"198.51.100.7"}, "172.16.0.6"},
		{"many hops", "10.0.0.1:1", []string{"1.1.1.1," + strings.Repeat("10.0.0.2,", 1000)}, "10.0.0.2"},
	} {
		key := keyOf(&forwarded.Options{
			Trusted: trust(t, "10.0.0.0/8", "fd00::/8", "172.16.0.5"),
		})
		assert.Equal(t, c.want, key(addressRequest(c.remote, "X-Forwarded-For", c.lines...)), c.name)
	}
}

func TestFinder_Forwarded(t *testing.T) {
	for _, c := range []struct {
		name  string
		lines []string
		want  string
	}{
		{"one", []string{"for=198.51.100.7"}, "198.51.100.7"},
		{"more pairs", []string{`proto=https;For="198.51.100.7:80";by=10.0.0.1`}, "198.51.100.7"},
		{"IPv6", []string{`for="[2001:db8:cafe::17]:4711"`}, "2001:db8:cafe::/64"},
		{"IPv6 without quotes", []string{`for=[2001:db8:cafe::17]:4711`}, "2001:db8:cafe::/64"},
		{"escaped", []string{`for="198.51.100.\7"`}, "198.51.100.7"},
		{"obfuscated port", []string{`for="198.51.100.7:_x1"`}, "198.51.100.7"},
		{"several", []string{"for=1.1.1.1, for=198.51.100.7;proto=http , for=10.0.0.2"}, "198.51.100.7"},
		{"several lines", []string{"for=1.1.1.1", "for=198.51.100.7", "for=10.0.0.2"}, "198.51.100.7"},
		{"unknown", []string{"for=1.1.1.1, for=unknown"}, "10.0.0.1"},
		{"obfuscated", []string{"for=1.1.1.1, for=_hidden, for=10.0.0.2"}, "10.0.0.2"},
		{"no for", []string{"for=1.1.1.1, proto=https"}, "10.0.0.1"},
		{"comma in quotes", []string{`for=198.51.100.7;ext="a,for=1.1.1.1"`}, "198.51.100.7"},
		{"a quote too many", []string{`for="1.1.1.1, for=198.51.100.7`}, "10.0.0.1"},
		{"quotes that swallow", []string{`for=1.1.1.1;x=", for="198.51.100.7";y="`}, "10.0.0.1"},
		{"a quote in the line before", []string{`for="1.1.1.1`, "for=198.51.100.7"}, "198.51.100.7"},
		{"twice", []string{"for=1.1.1.1;for=198.51.100.7"}, "10.0.0.1"},
		{"plain address", []string{"198.51.100.7"}, "10.0.0.1"},
		{"empty ones", []string{",, for=198.51.100.7 ,;, "}, "198.51.100.7"},
		{"trailing backslash", []string{`for="1.1.1.1\`}, "10.0.0.1"},
		{"many", []string{strings.Repeat("for=1.1.1.1,", 1000) + "for=198.51.100.7"}, "198.51.100.7"},
	} {
		key := keyOf(&forwarded.Options{Trusted: trust(t, "10.0.0.0/8"), Header: "forwarded"})
		assert.Equal(t, c.want, key(addressRequest("10.0.0.1:1", "Forwarded", c.lines...)), c.name)
	}
}

func TestFinder_OtherHeader(t *testing.T) {
	key := keyOf(&forwarded.Options{Trusted: trust(t, "::ffff:10.0.0.0/104"), Header: "cf-connecting-ip"})
	assert.Equal(t, "198.51.100.7", key(addressRequest("10.0.0.1:1", "CF-Connecting-IP", "198.51.100.7")))
}

func TestOptions_Validate(t *testing.T) {
	o := &forwarded.Options{Trusted: []netip.Prefix{{}}, IPv6Bits: 129, Header: "not a header"}
	require.EqualError(t, o.Validate("test"), `test: Trusted[0] must be a valid prefix; IPv6Bits must be from 1 to 128, or 0 for 64, got 129; `+
		`Header must be the name of a header, got "not a header"`)
	_, err := forwarded.ParseTrusted("test", []string{"10.0.0.0/8", "10.0.0.0/33", "nonsense", "::1"})
	require.EqualError(t, err, `test: networks[1] must be a network or an address, got "10.0.0.0/33"; networks[2] must be a network or an address, got "nonsense"`)
	assert.Equal(t, "[192.0.2.1/32 10.1.2.3/8]", fmt.Sprint(trust(t, "::ffff:192.0.2.1", "10.1.2.3/8")))
}

func TestFinder_Allocations(t *testing.T) {
	direct := keyOf(nil)
	behind := keyOf(&forwarded.Options{Trusted: trust(t, "10.0.0.0/8")})
	forwarded := keyOf(&forwarded.Options{Trusted: trust(t, "10.0.0.0/8"), Header: "Forwarded"})
	for _, c := range []struct {
		name string
		key  func(*http.Request) string
		r    *http.Request
		want float64
	}{
		{"IPv4", direct, addressRequest("192.0.2.1:1234", ""), 0},
		{"IPv6", direct, addressRequest("[2001:db8::1]:1234", ""), 1},
		{"X-Forwarded-For", behind, addressRequest("10.0.0.1:1", "X-Forwarded-For", "1.1.1.1, 198.51.100.7, 10.0.0.2"), 1},
		{"Forwarded", forwarded, addressRequest("10.0.0.1:1", "Forwarded", `for=1.1.1.1, for="198.51.100.7";proto=https`), 2},
	} {
		assert.Equal(t, c.want, testing.AllocsPerRun(100, func() { sink = c.key(c.r) }), c.name)
	}
}

var sink string

// Whatever a client sends first, the element that the proxy appends decides.
func FuzzFinder_XForwardedFor(f *testing.F) {
	for _, s := range []string{"", "1.1.1.1", "1.1.1.1, 2.2.2.2", ",,", "[::1]:80", "10.0.0.1, nonsense", "\"", ";", "for=1.1.1.1", "::ffff:1.2.3.4%eth0"} {
		f.Add(s)
	}
	fuzzForwarded(f, "X-Forwarded-For", "198.51.100.7")
}

func FuzzFinder_Forwarded(f *testing.F) {
	for _, s := range []string{"", "for=1.1.1.1", `for="1.1.1.1`, `for="a\`, "for=1.1.1.1;for=2.2.2.2", `x=", for="`, ",;,", `for="[2001:db8::1]:80";by=x`, "for"} {
		f.Add(s)
	}
	fuzzForwarded(f, "Forwarded", "for=198.51.100.7")
}

// fuzzForwarded sends text of a client, with the proxy's element on the same line and on a line of its own.
func fuzzForwarded(f *testing.F, header, proxys string) {
	f.Helper()
	key := keyOf(&forwarded.Options{Trusted: trust(f, "10.0.0.0/8"), Header: header})
	f.Fuzz(func(t *testing.T, made string) {
		if got := key(addressRequest("10.0.0.1:1", header, made, proxys)); got != "198.51.100.7" {
			t.Errorf("%q and the proxy's own line: %q", made, got)
		}
		// On one line a mistake can invalidate the whole line, but never leads to another address.
		if got := key(addressRequest("10.0.0.1:1", header, made+", "+proxys)); got != "198.51.100.7" && got != "10.0.0.1" {
			t.Errorf("%q and the proxy's on the same line: %q", made, got)
		}
		if got := key(addressRequest("10.0.0.1:1", header, made)); got == "" || len(got) > len("ffff:ffff:ffff:ffff::/64") {
			t.Errorf("%q alone: %q", made, got)
		}
	})
}

func TestFinder_BoundsTheHeader(t *testing.T) {
	trusted := trust(t, "10.0.0.0/8")
	const maxBytes = 16 << 10
	long := strings.Repeat("x", maxBytes)
	for header, lines := range map[string]map[string]string{
		"X-Forwarded-For": {
			long + ", 192.0.2.1":                     "192.0.2.1",
			long + "192.0.2.1, 10.0.0.2":             "10.0.0.2",
			strings.Repeat(",", 2*maxBytes):          "10.0.0.1",
			"192.0.2.1" + strings.Repeat(" ", 20000): "10.0.0.1",
			"192.0.2.1":                              "192.0.2.1",
		},
		"Forwarded": {
			"for=192.0.2.2;by=" + long + ",for=192.0.2.1": "10.0.0.1",
			"for=192.0.2.2,for=192.0.2.1":                 "192.0.2.1",
		},
	} {
		key := keyOf(&forwarded.Options{Trusted: trusted, Header: header})
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

func TestFinder_TranslatedIPv4(t *testing.T) {
	key := keyOf(nil)
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
