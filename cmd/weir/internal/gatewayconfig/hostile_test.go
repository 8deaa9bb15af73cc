package gatewayconfig_test

import (
	"fmt"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/cmd/weir/internal/gateway/plan"
	"github.com/weir-go/weir/cmd/weir/internal/gatewayconfig"
	"github.com/weir-go/weir/reload"
)

// lines repeats a line, with its number in place of each %d.
func lines(n int, format string) string {
	var b strings.Builder
	for i := range n {
		b.WriteString(strings.ReplaceAll(format, "%d", fmt.Sprint(i)))
	}
	return b.String()
}

// A file that means harm does not take long to refuse, nor does a large one that does not. No time is asserted, because a busy
// machine is slow with all of them: what could take forever, as keys of keys, would end the run of tests, and the bounds of what
// takes the square of its size are in the messages.
func TestHostile(t *testing.T) {
	const end = "limiters: {l: {unlimited: {}}}\n"
	for name, c := range map[string]struct{ file, want string }{
		"many routes":      {"gateway:\n  upstreams: {u: {addresses: [http://a]}}\n  routes:\n" + lines(200, "  - {match: '/{x}/a%d/{y}', upstream: u}\n") + end, ""},
		"routes that meet": {"gateway:\n  upstreams: {u: {addresses: [http://a]}}\n  routes:\n" + lines(100, "  - {match: '/a%d/{y}', upstream: u}\n  - {match: '/{x}/b%d', upstream: u}\n") + end, "it conflicts with the route"},
		"too many routes":  {"gateway:\n  upstreams: {u: {addresses: [http://a]}}\n  routes:\n" + lines(6000, "  - {match: '/a%d', upstream: u}\n") + end, "must have at most 5000 routes"},
		"many policies": {"gateway:\n  upstreams: {u: {addresses: [http://a]}}\n  policies:\n" + lines(300, "    p%d: {limiter: l}\n") +
			"  global: [" + lines(300, "p%d, ") + "]\n  routes: [{match: /, upstream: u, policies: [" + lines(300, "p%d, ") + "]}]\n" + end, "it is in global already"},
		"many keys":      {"gateway:\n  upstreams: {u: {addresses: [http://a]}}\n  keys:\n" + lines(200, "    k%d: {composite: [k%d, k%d1]}\n") + "  routes: [{match: /, upstream: u}]\n" + end, "must not be composite"},
		"many addresses": {"gateway:\n  upstreams: {u: {addresses: [" + lines(500, "http://a%d, ") + "]}}\n  routes: [{match: /, upstream: u}]\n" + end, ""},
		"a long pattern": {"gateway:\n  upstreams: {u: {addresses: [http://a]}}\n  routes: [{match: '" + strings.Repeat("/{x}", 10_000) + "', upstream: u}]\n" + end, "duplicate wildcard name"},
		"deep":           {"gateway: {keys: {k: " + strings.Repeat("{composite: [", 60) + strings.Repeat("]}", 60) + "}}\n", "nested more than 100 deep"},
		"every type":     {"gateway: {listen: [], admin: {}, tls: 1, trusted_proxies: a, stores: [], keys: 1, upstreams: a, policies: null, global: {}, routes: {}, shadow: 1, pprof: a, access_log: []}\n", "must be a list"},
	} {
		f, err := parse(c.file)
		if c.want != "" {
			require.ErrorContains(t, err, c.want, name)
			assert.NotContains(t, err.Error(), "panicked", name)
			continue
		}
		require.NoError(t, err, name)
		gatewayconfig.Warnings(f)
		require.NoError(t, f.Explain(io.Discard))
	}
}

// FuzzFile holds that what was accepted can be explained, compared and planned with.
func FuzzFile(f *testing.F) {
	content, err := os.ReadFile("../../testdata/gateway.yaml")
	require.NoError(f, err)
	f.Add(string(content))
	f.Add(minimal)
	f.Add(limited)
	f.Add("gateway: {routes: [{match: 'GET a.b/{x...}', upstream: u, strip_prefix: /a}], upstreams: {u: {addresses: ['https://[::1]:1/%2f']}}}")
	k := kinds()
	f.Fuzz(func(t *testing.T, text string) {
		file, err := reload.Parse("f", []byte(text), k)
		if err != nil {
			assert.NotContains(t, err.Error(), "panicked")
			return
		}
		gatewayconfig.Warnings(file)
		require.NoError(t, file.Explain(io.Discard))
		again, err := reload.Parse("f", []byte(text), k)
		require.NoError(t, err)
		assert.Empty(t, again.Change(file).Define, "a file differs from itself")
		for _, text := range []string{"GET /orders/7 X-Api-Key=abc", "POST http://users.example.com/api/ @unix", "GET /x"} {
			r, err := plan.ParseRequest(text)
			require.NoError(t, err)
			if err := plan.Write(io.Discard, file, r); err != nil {
				require.ErrorIs(t, err, plan.ErrNoGateway)
			}
		}
	})
}
