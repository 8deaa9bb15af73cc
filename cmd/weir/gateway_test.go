package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v4"
)

const gatewayFile = "testdata/gateway.yaml"

func TestCheck_Gateway(t *testing.T) {
	r := weir("", "check", gatewayFile)
	assert.Equal(t, result{0, gatewayFile + ": ok: 2 pipelines, 6 named limiters, 1 budget, gateway with 5 routes\n", ""}, r)
}

const smallGateway = `
limiters:
  a: {partitioned: {key: client, each: {concurrency: {permit_limit: 1}}}}
gateway:
  keys: {client: {address: {}}}
  upstreams: {u: {addresses: ["http://127.0.0.1:1"]}}
  policies: {p: {limiter: a}, q: {limiter: a}}
  routes: [{match: "GET /{x}", upstream: u, policies: [p]}]
`

// What only the program of a library user could know is wrong in a file for the gateway, also without -strict.
func TestCheck_GatewayIsStrict(t *testing.T) {
	for _, part := range []struct{ what, by, message string }{
		{"key: client", "key: cleint", `no key function "cleint", did you mean "client"?`},
		{"concurrency: {permit_limit: 1}", "leaky_pail: {}", `unknown kind of limiter for each key "leaky_pail"`},
		{"limiters:", "pipelines: {x: {strategies: [retry: {handle: temporary}]}}\nlimiters:", `no handle function "temporary", there is only retryable`},
		{"gateway:", "mesh: {}\ngateway:", `unknown field "mesh"`},
	} {
		r := weir(strings.Replace(smallGateway, part.what, part.by, 1), "check", "-")
		assert.Equal(t, 1, r.status)
		assert.Contains(t, r.err, part.message)
	}
}

func TestCheck_GatewayWarnings(t *testing.T) {
	r := weir(smallGateway, "check", "-")
	assert.Equal(t, result{0, "-: ok: 0 pipelines, 1 named limiter, gateway with 1 route\n",
		"-: warning: the limiter a has no max_partitions, which bounds its memory: clients can make up keys\n-: warning: gateway.policies.q is not used\n"}, r)
}

// Each server refuses a file with the field of the other, so weir check does, too, and says so even if names collide.
func TestCheck_BothServers(t *testing.T) {
	const rls = "rls: {stores: {%s: {redis: 'redis://a'}}, domains: [{domain: d}]}\n"
	for _, store := range []string{"main", "other"} {
		file := smallGateway + fmt.Sprintf(rls, store)
		if store == "main" {
			file = strings.Replace(file, "gateway:\n", "gateway:\n  stores: {main: {redis: 'redis://a'}}\n", 1)
		}
		r := weir(file, "check", "-")
		assert.Equal(t, result{1, "", "-: has both gateway and rls, which must be in two files: weir gateway refuses a file with rls, and weir rls one with gateway\n"}, r)
	}
	assert.Contains(t, weir("rls: {x: 1}\n", "check", "-").err, `rls: unknown field "x"`)
}

// A program can have its own part of the file, of which weir knows nothing.
func TestCheck_UnknownSection(t *testing.T) {
	const file = "mailer: {lists: {news: {limiter: slow}}}\n"
	r := weir(file, "check", "-")
	assert.Equal(t, 0, r.status, r.err)
	r = weir(file, "check", "-strict", "-")
	assert.Equal(t, 1, r.status)
	assert.Contains(t, r.err, `unknown field "mailer"`)
	r = weir("limitres: {}\n", "check", "-")
	assert.Contains(t, r.err, `unknown field "limitres", did you mean "limiters"?`)
}

func TestCheck_GatewayHealth(t *testing.T) {
	file := func(addresses, health string) string {
		return fmt.Sprintf("gateway:\n  upstreams: {u: {addresses: [%s], health: {%s}}}\n  routes: [{match: /, upstream: u}]\n", addresses, health)
	}
	const two = `"http://127.0.0.1:1", "http://127.0.0.1:2"`
	for health, want := range map[string]string{
		"":                    "; prefers the other addresses for 5s after 5 failures in a row, or after failures of 10% of at least 100 requests in 30s\n",
		"break_duration: 10s": "; prefers the other addresses for 10s after 5 failures in a row, or after failures of 10% of at least 100 requests in 30s\n",
		"failure_ratio: off":  "; prefers the other addresses for 5s after 5 failures in a row\n",
		"consecutive_failures: off, minimum_throughput: 9": "; prefers the other addresses for 5s after failures of 10% of at least 9 requests in 30s\n",
		"off: true": "; treats addresses that fail like others\n",
	} {
		r := weir(file(two, health), "explain", "-")
		assert.Equal(t, 0, r.status, r.err)
		assert.Contains(t, r.out, want)
	}
	r := weir(file(two, "failure_ratio: off, consecutive_failures: off"), "check", "-")
	assert.Contains(t, r.err, "failure_ratio")
	for _, field := range []string{"retry_rejections: true", "name: x"} { // of a circuit breaker that rejects something
		r = weir(file(two, field), "check", "-")
		name, _, _ := strings.Cut(field, ":")
		assert.Contains(t, r.err, "-:2:85: gateway.upstreams.u.health: unknown field \""+name+"\", there are break_duration, consecutive_failures, ")
	}
	r = weir(file(`"http://127.0.0.1:1"`, "break_duration: 10s"), "check", "-")
	assert.Contains(t, r.err, "gateway.upstreams.u.health is without effect: there is one address, which is always asked")
}

func TestExplain_Gateway(t *testing.T) {
	r := weir("", "explain", gatewayFile)
	require.Equal(t, 0, r.status, r.err)
	for _, line := range []string{
		"  listens on :8080 with TLS; admin: 127.0.0.1:9900\n",
		"  route users.example.com/api/: overall, per-client, logins; to users, without /api\n",
		"  policy overall: takes a permit of overall (concurrency limiter: 500 at once; up to 100 wait); ",
		"reads\n  1. each execution: timeout with timeout: 5s",
	} {
		assert.Contains(t, r.out, line)
	}
	assert.NotContains(t, r.out, "is used by no pipeline")
	assert.NotContains(t, r.out, "redis.internal", "the URL of a store can have a password")

	r = weir("", "explain", gatewayFile, "gateway")
	assert.True(t, strings.HasPrefix(r.out, "gateway\n"))
	assert.NotContains(t, r.out, "\nreads\n")
}

func TestExplain_Request(t *testing.T) {
	r := weir("", "explain", "-request", "GET /orders @203.0.113.9", gatewayFile)
	require.Equal(t, 0, r.status, r.err)
	assert.Contains(t, r.out, "  matches routes[0], GET /orders\n")
	assert.Contains(t, r.out, `     the key client is "203.0.113.9"`+"\n")

	for _, c := range []struct {
		args  []string
		parts []string
	}{
		{[]string{"explain", "-request", "GET orders", gatewayFile}, []string{`-request: parse "orders": invalid URI for request`, "METHOD TARGET"}},
		{[]string{"explain", "-request", "", gatewayFile}, []string{"-request: a request is a method and a path, such as GET /orders", "METHOD TARGET"}},
		{[]string{"explain", "-request= ", gatewayFile}, []string{"-request: a request is a method and a path, such as GET /orders"}},
		{[]string{"explain", "-request", "GET /", gatewayFile, "reads"}, []string{"with -request there is only a file, found reads"}},
		{[]string{"explain", "-request", "GET /", write(t, good)}, []string{"weir.yaml: the file has no gateway"}},
	} {
		r := weir("", c.args...)
		assert.Equal(t, 2, r.status)
		for _, part := range c.parts {
			assert.Contains(t, r.err, part)
		}
	}
}

func TestSchema_Gateway(t *testing.T) {
	r := weir("", "schema")
	require.Equal(t, 0, r.status)
	var schema struct {
		Properties map[string]any `json:"properties"`
		Defs       map[string]struct {
			Properties map[string]struct {
				Description string `json:"description"`
			} `json:"properties"`
		} `json:"$defs"`
	}
	require.NoError(t, json.Unmarshal([]byte(r.out), &schema))
	assert.Contains(t, schema.Properties, "gateway")
	for name, field := range schema.Defs["section.gateway"].Properties {
		assert.NotEmpty(t, field.Description, name)
	}
	assert.Contains(t, schema.Defs["section.gateway"].Properties["listen"].Description, "A change needs a restart.")
}

// What an editor accepts and refuses by the schema.
func TestSchema_Files(t *testing.T) {
	parsed, err := jsonschema.UnmarshalJSON(strings.NewReader(weir("", "schema").out))
	require.NoError(t, err)
	c := jsonschema.NewCompiler()
	require.NoError(t, c.AddResource("schema.json", parsed))
	schema, err := c.Compile("schema.json")
	require.NoError(t, err)
	check := func(text string) error {
		var document any
		require.NoError(t, yaml.Load([]byte(text), &document))
		asJSON, err := json.Marshal(document)
		require.NoError(t, err)
		instance, err := jsonschema.UnmarshalJSON(bytes.NewReader(asJSON))
		require.NoError(t, err)
		return schema.Validate(instance)
	}
	require.NoError(t, check(read(t, gatewayFile)))
	require.NoError(t, check(read(t, rlsFile)))
	require.NoError(t, check(smallRLS("  listen: ':1'")))
	for what, by := range map[string]string{"unit: hour": "unit: fortnight", "domain: edge": "domian: edge", "{key: all,": "{kye: all,"} {
		require.Error(t, check(strings.Replace(smallRLS("  listen: ':1'"), what, by, 1)), by)
	}
	require.NoError(t, check(smallGateway))
	for what, by := range map[string]string{
		"upstream: u":               "upstraem: u",
		"{client: {address: {}}}":   "{client: {address: {}, header: X}}",
		"{limiter: a}":              "{limiter: a, cost: 0}",
		"routes: ":                  "listen: 8080\n  routes: ",
		"keys: {client:":            "keys: {other: {}, client:",
		`addresses: ["http://127.0`: `dial_timeout: 5, addresses: ["http://127.0`,
	} {
		require.Contains(t, smallGateway, what)
		assert.Error(t, check(strings.Replace(smallGateway, what, by, 1)), by)
	}
}
