package rlsconfig_test

import (
	"bytes"
	"flag"
	"os"
	"strings"
	"testing"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/weir-go/weir/cmd/weir/internal/rlsconfig"
	"github.com/weir-go/weir/registry"
	"github.com/weir-go/weir/reload"
	"github.com/weir-go/weir/transport/weirrls"
)

var update = flag.Bool("update", false, "write the files of testdata")

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// parse parses a file without the program that runs it.
func parse(text string) (*reload.File, error) {
	k := reload.NewKinds()
	rlsconfig.Register(k, rlsconfig.Runtime{})
	return reload.Parse("f", []byte(text), k)
}

func exampleFile(t *testing.T) *reload.File {
	t.Helper()
	content, err := os.ReadFile("../../testdata/rls.yaml")
	require.NoError(t, err)
	f, err := parse(string(content))
	require.NoError(t, err)
	return f
}

func TestExplain(t *testing.T) {
	var b bytes.Buffer
	require.NoError(t, exampleFile(t).Explain(&b, rlsconfig.Field))
	const golden = "testdata/explain.txt"
	if *update {
		require.NoError(t, os.WriteFile(golden, b.Bytes(), 0o644))
	}
	want, err := os.ReadFile(golden)
	require.NoError(t, err)
	assert.Equal(t, string(want), b.String(), "if the change is meant, run go test ./internal/rlsconfig -update")
	assert.NotContains(t, b.String(), "redis.internal", "the URL of a store can have a password")
}

func TestWarnings(t *testing.T) {
	assert.Empty(t, rlsconfig.Warnings(exampleFile(t)))
	f, err := parse(`
rls:
  stores: {s: {redis: "redis://a"}}
  domains:
    - domain: d
      descriptors:
        - {key: a, shadow_mode: true, descriptors: [{key: b}]}
        - {key: c, rate_limit: {limiter: l, replaces: [{name: x}]}}
limiters: {l: {partitioned: {key: descriptor, each: {fixed_window: {permit_limit: 1, window: 1s, queue_limit: 3}}}}}
`)
	require.NoError(t, err)
	assert.Equal(t, []string{
		"rls.domains: the descriptor a has no rate_limit, so that shadow_mode, quota_mode and detailed_metric have no effect there",
		"rls.domains: the descriptor b has neither a rate_limit nor descriptors",
		"rls.domains: no limit has the name x, which replaces names",
		"the queue_limit of the limiter l has no effect on requests: they never wait",
		"the limiter l has no max_partitions, which bounds its memory: clients can make up values",
		"rls.stores.s is not used",
	}, rlsconfig.Warnings(f))
}

// Each descriptor is wrong in one way; the last part of the message.
func TestInvalid_Descriptor(t *testing.T) {
	for descriptor, message := range map[string]string{
		`{key: ""}`:                                                        "descriptors[0].key: key must not be empty",
		`{value: x}`:                                                       "descriptors[0]: key is missing",
		`{key: a, share_threshold: true}`:                                  "share_threshold must be left out without a * in value",
		`{key: a}, {key: a}`:                                               "descriptors[1].key: key must not be that of descriptors[0]",
		`{key: a, value: b}, {key: a_b}`:                                   `key must not form "a_b" with its value: descriptors[0] does`,
		`{key: a, descriptors: [{key: b}, {key: b}]}`:                      "descriptors[0].descriptors[1].key: key must not be that of descriptors[0]",
		`{key: a, rate_limit: {}}`:                                         "must have one of limiter, requests_per_unit with unit, and unlimited",
		`{key: a, rate_limit: {limiter: w, unlimited: true}}`:              "must have one of limiter, requests_per_unit with unit, and unlimited",
		`{key: a, rate_limit: {unit: hour}}`:                               "requests_per_unit must be set with unit",
		`{key: a, rate_limit: {requests_per_unit: 1}}`:                     "unit must be set with requests_per_unit",
		`{key: a, rate_limit: {requests_per_unit: 1, unit: fortnight}}`:    `must be "second", "minute", "hour", "day", "week", "month" or "year", found the text "fortnight"`,
		`{key: a, rate_limit: {requests_per_unit: 4294967296, unit: day}}`: "is out of range",
		`{key: a, rate_limit: {limiter: w, mode: envoy}}`:                  "mode must be left out without requests_per_unit",
		`{key: a, rate_limit: {requests_per_unit: 1, unit: day, mode: envoy, on_overrun: debt}}`: "rate_limit.on_overrun: on_overrun must be left out in mode envoy",
		`{key: a, rate_limit: {unlimited: true, on_overrun: rest}}`:                              "on_overrun must be left out with unlimited",
		`{key: a, rate_limit: {unlimited: true, replaces: [{name: ""}]}}`:                        "replaces[0].name: name must not be empty",
		`{key: a, rate_limit: {unlimited: true, name: n, replaces: [{name: m}, {name: n}]}}`:     "replaces[1].name: name must not be the name of the limit itself",
		`{key: a, rate_limit: {limiter: none}}`:                                                  `there is no limiter "none"`,
		`{key: a, rate_limit: {limiter: c}}`:                                                     "must not be or contain the kind concurrency",
		`{key: a, rate_limit: {limiter: chain}}`:                                                 "must not be or contain the kind concurrency",
		`{key: a, rate_limit: {limiter: learns}}`:                                                "must not be or contain the kind adaptive",
		`{key: a, rate_limit: {unlimited: true, name: ` + strings.Repeat("x", 1025) + `}}`:       "rate_limit.name: name must",
		`{key: a, metadata: {x: .inf}}`:                                                          "metadata.x: must be a number in decimal digits",
		`{key: a, metadata: [1]}`:                                                                "metadata: must be a mapping, found a list",
		strings.Repeat(`{key: a, descriptors: [`, 60) + strings.Repeat(`]}`, 60):                 "nested more than 100 deep",
	} {
		_, err := parse("rls: {domains: [{domain: d, descriptors: [" + descriptor + "]}]}\n" + `
limiters:
  w: {fixed_window: {permit_limit: 1, window: 1s}}
  c: {partitioned: {key: descriptor, each: {concurrency: {permit_limit: 1}}}}
  chain: {chain: [w, c]}
  learns: {adaptive: {}}
`)
		assert.ErrorContains(t, err, message, descriptor)
	}
}

// What check accepts can be run: no window and no limiter has 0 permits, so the rule has a Window, which has no OnOverrun.
func TestNewRules_NoRequests(t *testing.T) {
	var made *weirrls.Rules
	kinds := reload.NewKinds()
	rlsconfig.Register(kinds, rlsconfig.Runtime{Pipelines: func(c rlsconfig.RLS) map[string]func(*reload.SectionBuilder) error {
		return map[string]func(*reload.SectionBuilder) error{rlsconfig.PipelineName: func(b *reload.SectionBuilder) (err error) {
			made, err = c.NewRules(b, nil)
			return err
		}}
	}})
	reg := registry.New(nil)
	defer reg.Close(t.Context())
	read := func() ([]byte, error) {
		return []byte("rls: {domains: [{domain: d, descriptors: [{key: a, rate_limit: {requests_per_unit: 0, unit: day, on_overrun: debt}}]}]}\n"), nil
	}
	w, err := reload.Start(t.Context(), reg, "f", &reload.Options{Kinds: kinds, Read: read})
	require.NoError(t, err)
	w.Stop()
	_, err = reg.Get(rlsconfig.PipelineName)
	require.NoError(t, err)
	service, err := weirrls.NewService(made, nil)
	require.NoError(t, err)
	r, err := rlsconfig.ParseRequest("d: a=1")
	require.NoError(t, err)
	answer, err := service.ShouldRateLimit(t.Context(), r)
	require.NoError(t, err)
	assert.Equal(t, ratelimitv3.RateLimitResponse_OVER_LIMIT, answer.GetOverallCode())
}

func TestInvalid_RLS(t *testing.T) {
	for fields, message := range map[string]string{
		`listen: 8081`:                  `must be text, found the number 8081`,
		`listen: "unix:"`:               "must have the path of a socket after unix:",
		`admin: "unix:/x"`:              "must be host:port, or off",
		`admin: 127.0.0.1:8081`:         "admin must not be the address of listen",
		`http: 127.0.0.1:8081`:          "http must not be the address of listen",
		`http: 127.0.0.1:9900`:          "http must not be the address of admin",
		`tls: {certificate: a}`:         "rls.tls: key is missing",
		`max_connection_age: -2s`:       "must be",
		`counters: {store: s}`:          `there is no "s" in rls.stores`,
		`counters: {outage: fail_open}`: "outage must be left out without store",
		`stores: {s: {redis: "redis://a"}}, counters: {store: s, outage: fall_back_locally}`: "local_share must be more than 0 and at most 1",
		`stores: {s: {}}`: "must have redis or postgres",
		`mode: envoy, domains: [{domain: a, descriptors: [{key: k, rate_limit: {requests_per_unit: 1, unit: day, on_overrun: rest}}]}]`: "f:1:123: rls.domains[0].descriptors[0].rate_limit.on_overrun",
		`domains: [{domain: a}, {domain: a}]`:                    "domain must not be that of another domain: put all its descriptors into one",
		`domains: [{domain: ` + strings.Repeat("x", 1025) + `}]`: "domains[0].domain: domain must",
		`domains: [{domain: ""}]`:                                "domain must not be empty",
	} {
		_, err := parse("rls: {" + fields + "}\n")
		assert.ErrorContains(t, err, message, fields)
	}
	_, err := parse("rls: {}\nlimiters: {rls/edge: {fixed_window: {permit_limit: 1, window: 1s}}}\n")
	require.ErrorContains(t, err, "names that begin with rls/ are reserved for the limiters of rules")
	_, err = parse("rls: {}\nlimiters: {l: {partitioned: {key: remote, each: {fixed_window: {permit_limit: 1, window: 1s}}}}}\n")
	require.ErrorContains(t, err, `there is no key function "remote", there is only descriptor`)
	_, err = parse("rls: {}\n")
	require.NoError(t, err)
}

func TestFind(t *testing.T) {
	f := exampleFile(t)
	for text, want := range map[string]string{
		"edge: remote_address=198.51.100.1":   "rule: edge / remote_address\n",
		"edge:remote_address=203.0.113.77":    "rule: edge / remote_address_203.0.113.*\n",
		"edge: user = alice, path=/reports/x": "rule: edge / user / path_/reports/*\n  limit: 10 in each hour",
		"edge: user=alice":                    "no rule is for it: it passes",
		"edge: plan=enterprise":               "limit: unlimited; replaces office",
		"none: user=alice":                    "no rule is for it: it passes",
	} {
		r, err := rlsconfig.ParseRequest(text)
		require.NoError(t, err)
		var b bytes.Buffer
		require.NoError(t, rlsconfig.Find(&b, f, r))
		assert.Contains(t, b.String(), want, text)
	}
	for text, message := range map[string]string{
		"":         "must begin with the domain and a colon",
		"user=a":   "must begin with the domain and a colon",
		"edge:":    `each entry must be KEY=VALUE, got ""`,
		"edge: =a": `each entry must be KEY=VALUE, got "=a"`,
	} {
		_, err := rlsconfig.ParseRequest(text)
		assert.ErrorContains(t, err, message, text)
	}
}
