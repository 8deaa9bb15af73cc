package gatewayconfig_test

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/weir-go/weir/cmd/weir/internal/gatewayconfig"
	"github.com/weir-go/weir/reload"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// kinds returns what weir check knows.
func kinds() *reload.Kinds {
	k := reload.NewKinds()
	k.AcceptUnknown()
	gatewayconfig.Register(k, gatewayconfig.Runtime{})
	return k
}

// parse parses a file without the program that runs it.
func parse(text string) (*reload.File, error) { return reload.Parse("f", []byte(text), kinds()) }

func TestExampleFile(t *testing.T) {
	content, err := os.ReadFile("../../testdata/gateway.yaml")
	require.NoError(t, err)
	f, err := parse(string(content))
	require.NoError(t, err)
	g, ok := reload.SectionOf[gatewayconfig.Gateway](f, gatewayconfig.Field)
	require.True(t, ok)
	assert.Equal(t, []string{"overall", "per-client", "per-key", "per-order"}, g.PoliciesOf(g.Routes[1]))
	assert.Empty(t, g.PoliciesOf(g.Routes[4]))
	assert.Empty(t, gatewayconfig.Warnings(f))
}

// minimal is a valid file; tests put text before its routes.
const minimal = `limiters:
  a: {concurrency: {permit_limit: 1}}
  per-user: {partitioned: {key: user, each: {concurrency: {permit_limit: 1}}}}
pipelines:
  p: {strategies: [hedging: {}]}
gateway:
  keys: {user: {header: X-User}}
  upstreams: {u: {addresses: ["http://127.0.0.1:1"]}}
  policies: {p: {limiter: a}}
  routes: [{match: /, upstream: u}]
`

// Each line is wrong in one way: what is replaced in the minimal file, by what, and a part of the message.
func TestInvalid(t *testing.T) {
	_, err := parse(minimal)
	require.NoError(t, err)
	const routes, upstreams, keys, policies = "routes: [{match: /, upstream: u}]", `upstreams: {u: {addresses: ["http://127.0.0.1:1"]}}`, "keys: {user: {header: X-User}}", "policies: {p: {limiter: a}}"
	for _, c := range []struct{ what, by, message string }{
		{routes, "routes: []", "f:10:11: gateway.routes: routes must have at least one route"},
		{routes, "listen: 8080\n  " + routes, `f:10:11: gateway.listen: must be text`},
		{routes, "listen: localhost\n  " + routes, `f:10:11: gateway.listen: listen must be host:port`},
		{routes, "listen: ':99999'\n  " + routes, `must have a port from 0 to 65535`},
		{routes, "listen: '[a:b]:80'\n  " + routes, `must have an IPv6 address in the brackets`},
		{routes, "listen: 'unix:'\n  " + routes, `must have the path of a socket`},
		{routes, "listen: ''\n  " + routes, `must not be empty; for the default, which is :8080, leave listen out`},
		{routes, "listen: '127.0.0.1:9900'\n  " + routes, `admin must not be the address of listen`},
		{routes, "admin: unix:/run/weir\n  " + routes, `admin must be host:port, or off`},
		{routes, "tls: {certificate: a, key: ''}\n  " + routes, `gateway.tls.key: key must not be empty`},
		{routes, "tls: {certificate: a, key: b}\n  h2c: true\n  " + routes, `h2c must not be set with tls`},
		{routes, "trusted_proxies: [10.0.0.0/8, moon]\n  " + routes, `gateway.trusted_proxies[1]: must be a network such as 10.0.0.0/8, an address, or unix`},
		{routes, "client_address_header: 'X Y'\n  " + routes, `must be the name of a header`},
		{routes, "max_header_bytes: 10\n  " + routes, `must be at least 4096, found 10`},
		{routes, "shutdown_timeout: -1s\n  " + routes, `shutdown_timeout must be at least 0`},
		{routes, "shutdown_timeout: 0s\n  " + routes, `must not be 0; for the default, which is 30s`},
		{routes, "idle_timeout: 0s\n  " + routes, `or write "off" for none`},
		{routes, "acces_log: {}\n  " + routes, `unknown field "acces_log", did you mean "access_log"?`},
		{routes, "access_log: {output: file}\n  " + routes, `must be "stdout" or "stderr"`},
		{routes, "headers: draft11\n  " + routes, `did you mean "draft-11"?`},
		{routes, "global: [q]\n  " + routes, `gateway.global[0]: there is no "q" in gateway.policies, there is only p`},
		{routes, "global: [p, p]\n  " + routes, `gateway.global[1]: global[1] must not be there twice`},
		{routes, "stores: {s: {}}\n  " + routes, `must have redis or postgres`},
		{routes, "stores: {s: {redis: 'redis://a', postgres: 'postgres://b'}}\n  " + routes, `must have only one of redis and postgres`},
		{routes, "stores: {s: {redis: 'http://u:hunter2@a'}}\n  " + routes, `redis must be a URL that begins with redis:// or rediss:// or unix://`},
		{routes, "stores: {s: {redis: 'redis://a', migrate: true}}\n  " + routes, `migrate must be left out: it is for postgres`},
		{"a: {concurrency: {permit_limit: 1}}", "a: {concurrency: {permit_limit: 1}, store: shared}", `there is no store "shared", there are none`},

		{keys, "keys: {user: {}}", `the kind of key is missing, it is one of address, composite, header, jwt_claim, path_value, route`},
		{keys, "keys: {user: {header: X, route: {}}}", `a key has one kind, found "route" after "header"`},
		{keys, "keys: {user: {headr: X}}", `unknown kind of key "headr", did you mean "header"?`},
		{keys, "keys: {user: {header: ''}}", `must not be empty`},
		{keys, "keys: {user: {header: 'a b'}}", `must be the name of a header`},
		{keys, "keys: {user: {path_value: '{id}'}}", `must be the name of a wildcard`},
		{keys, "keys: {user: {address: {ipv6_bits: 129}}}", `must be at most 128, found 129`},
		{keys, "keys: {user: {composite: [user, user]}}", `gateway.keys.user.composite[0]: composite[0] must not be composite: list what it is made of, got "user"`},
		{keys, "keys: {user: {composite: [usr, usr]}}", `there is no "usr" in gateway.keys, did you mean "user"?`},
		{keys, "keys: {user: {composite: []}}", `must not be empty`},
		{keys, "keys: {usr: {header: X-User}}", `f:3:33: limiters.per-user.partitioned.key: there is no key function "user", did you mean "usr"?`},
		{keys, "keys: {user: {jwt_claim: {claim: sub}}}", `must have one of secret_file, public_key_file and jwks_file, or unverified: true`},
		{keys, "keys: {user: {jwt_claim: {claim: sub, unverified: true, secret_file: a}}}", `must have only one of`},
		{keys, "keys: {user: {jwt_claim: {claim: sub, unverified: true, issuer: a}}}", `issuer must be left out with unverified`},
		{keys, "keys: {user: {jwt_claim: {claim: sub, secret_file: a, algorithms: [RS256]}}}", `algorithms[0] must be one of HS256, HS384, HS512, got "RS256"`},
		{keys, "keys: {user: {jwt_claim: {claim: sub, jwks_file: a, algorithms: [none]}}}", `algorithms[0] must be one of RS256`},
		{`per-user: {partitioned: {key: user, each: {concurrency: {permit_limit: 1}}}}`,
			"per-user: {partitioned: {key: order, each: {concurrency: {permit_limit: 1}}}}\n  a2: {chain: [a, per-user]}\ngateway2: 1", `unknown field "gateway2", did you mean "gateway"?`},

		{upstreams, "upstreams: {u: {addresses: []}}", `addresses must have at least one address`},
		{upstreams, "upstreams: {u: {addresses: ['127.0.0.1:9001']}}", `https://[2001:db8::7]: http:// or https:// is missing`},
		{upstreams, "upstreams: {u: {addresses: ['localhost:9001']}}", `gateway.upstreams.u.addresses[0]: must be a URL such as http://10.0.0.7:8080 or https://[2001:db8::7]: http:// or https:// is missing`},
		{upstreams, "upstreams: {u: {addresses: ['http://a', 'http://a/']}}", `addresses[1] must not be there twice`},
		{upstreams, "upstreams: {u: {addresses: ['http://a', 'https://b']}}", `must have the same scheme`},
		{upstreams, "upstreams: {u: {addresses: ['http://a'], tls: {ca: b}}}", `tls must be left out: no address has https`},
		{upstreams, "upstreams: {u: {addresses: ['https://a'], h2c: true}}", `h2c must be left out: no address has http`},
		{upstreams, "upstreams: {u: {addresses: ['https://a'], tls: {key: b}}}", `must have certificate and key, or neither`},
		{upstreams, "upstreams: {u: {addresses: ['http://a'], health: {failure_ratio: 2}}}", `gateway.upstreams.u.health.failure_ratio: failure_ratio must be`},
		{upstreams, "upstreams: {u: {addresses: ['http://a'], health: {name: x}}}", `unknown field "name", there are break_duration, `},
		{upstreams, "upstreams: {u: {addresses: ['http://a'], dial_timeout: 5}}", `must be a duration with its unit`},

		{policies, "policies: {p: {limiter: b}}", `gateway.policies.p.limiter: there is no limiter "b", there are a, per-user`},
		{policies, "policies: {global: {limiter: a}}", `must have another name`},
		{policies, "policies: {p: {limiter: a, status: 200}}", `status must be from 400 to 599, got 200`},
		{policies, "policies: {p: {limiter: a, cost: 0}}", `must not be 0; for the default, which is 1`},
		{policies, "policies: {p: {limiter: a, window: 1s}}", `window must be left out without quota`},
		{policies, "policies: {p: {limiter: a, max_wait: -5s}}", `max_wait must be at least 0, or off`},
		{policies, "policies: {p: {limiter: a, shadow: true, max_wait: 5s}}", `must be left out with shadow`},
		{"a: {concurrency: {permit_limit: 1}}", "a: {chain: [b]}\n  b: {adaptive: {}}", `must not be or contain the kind adaptive`},

		{routes, "routes: [{match: 'GET  x', upstream: u}]", `gateway.routes[0].match`},
		{routes, "routes: [{match: 'get /', upstream: u}]", `must have the method in capital letters`},
		{routes, "routes: [{match: 'a:80/', upstream: u}]", `must have a host without a port`},
		{routes, "routes: [{match: 'A/', upstream: u}]", `must have the host in small letters`},
		{routes, "routes: [{match: 'CONNECT /', upstream: u}]", `must have another method`},
		{routes, "routes: [{match: '/{id', upstream: u}]", `; a pattern is such as GET api.example.com/orders/{id}`},
		{routes, "routes: [{match: /, upstream: v}]", `there is no "v" in gateway.upstreams, there is only u`},
		{routes, "routes: [{match: /, upstream: u, policies: [p, p]}]", `policies[1] must not be there twice`},
		{routes, "global: [p]\n  routes: [{match: /, upstream: u, policies: [p]}]", `must be left out: it is in global already`},
		{routes, "routes: [{match: /, upstream: u, pipeline: q}]", `there is no pipeline "q"`},
		{routes, "routes: [{match: '/{a}', upstream: u}, {match: '/{b}', upstream: u}]", `f:10:50: gateway.routes[1].match: match is invalid: it conflicts with the route "/{a}": /{b} matches the same requests as /{a}`},
		{routes, "routes: [{match: '/api/x', upstream: u, strip_prefix: api}]", `must begin with a slash`},
		{routes, "routes: [{match: '/api/x', upstream: u, strip_prefix: /ap}]", `must be the beginning of the path in match`},
		{routes, "routes: [{match: '/{x}/a', upstream: u, strip_prefix: '/{x}'}]", `must have no wildcard`},
		{"pipelines:", "pipelines:\n  gateway/u: {strategies: []}", `f:8:3: gateway: cannot be with a pipeline called gateway/u`},
		{"pipelines:", "pipelines:\n  gateway: {strategies: []}", `the pipeline of this name is that of gateway`},
	} {
		_, err := parse(strings.Replace(minimal, c.what, c.by, 1))
		if assert.Error(t, err, c.by) {
			assert.Contains(t, err.Error(), c.message, c.by)
			assert.NotContains(t, err.Error(), "hunter2", c.by)
			assert.NotContains(t, err.Error(), "panicked", c.by)
		}
	}
}

// A route whose path lacks the wildcard that is the key of one of its policies.
func TestInvalid_Wildcard(t *testing.T) {
	_, err := parse(`limiters:
  per-order: {partitioned: {key: both, each: {concurrency: {permit_limit: 1}}}}
  chained: {chain: [per-order]}
gateway:
  keys: {order: {path_value: id}, route: {route: {}}, both: {composite: [order, route]}}
  upstreams: {u: {addresses: ["http://127.0.0.1:1"]}}
  policies: {p: {limiter: chained}}
  global: [p]
  routes:
    - {match: "/orders/{id...}", upstream: u}
    - {match: "/orders/{order}/items/{$}", upstream: u}
    - {match: "/health", upstream: u, exempt: true}
`)
	assert.EqualError(t, err, "f:11:15: gateway.routes[1].match: match is invalid: it needs the wildcard {id}, which is the key of the policy p; "+
		"without it all requests of the route have one key")
}

func TestWarnings(t *testing.T) {
	f, err := parse(strings.NewReplacer("match: /", "match: POST /, pipeline: p", "hedging: {}", "hedging: {}, retry: {}").Replace(minimal))
	require.NoError(t, err)
	assert.Equal(t, []string{
		"gateway.routes[0]: the pipeline p hedges, but a POST is never sent twice at once",
		"gateway.routes[0]: the pipeline p retries, but a POST is only sent again if it has an Idempotency-Key",
		"the limiter per-user has no max_partitions, which bounds its memory: clients can make up keys",
		"gateway.policies.p is not used",
	}, gatewayconfig.Warnings(f))
}
