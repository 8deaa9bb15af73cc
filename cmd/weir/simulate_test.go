package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/simulate"
)

const simulatedFile = "testdata/simulate.yaml"

// simulated runs weir simulate for the pipeline orders of a file, under a small load that the flags can change.
func simulated(stdin, file string, flags ...string) result {
	args := append([]string{"simulate", "-pipeline", "orders", "-rate", "150", "-poisson", "-for", "4s", "-keys", "zipf:100", "-latency", "10ms"}, flags...)
	return weir(stdin, append(args, file)...)
}

// resultOf runs weir simulate and reads its JSON.
func resultOf(t *testing.T, args ...string) (r simulate.Result) {
	t.Helper()
	ran := weir("", append([]string{"simulate", "-o", "json"}, args...)...)
	require.Zero(t, ran.status, ran.err)
	require.NoError(t, json.Unmarshal([]byte(ran.out), &r))
	return r
}

func TestSimulate_Table(t *testing.T) {
	t.Parallel()
	r := simulated("", simulatedFile, "-instances", "2", "-seed", "7", "-window", "1s", "-window", "100ms")
	assert.Zero(t, r.status, r.err)
	assert.Empty(t, r.err)
	const golden = "testdata/simulate.txt"
	if *update {
		require.NoError(t, os.WriteFile(golden, []byte(r.out), 0o644))
	}
	assert.Equal(t, read(t, golden), r.out, "go test ./cmd/weir -run Simulate -update writes it")
	assert.Equal(t, r, simulated("", simulatedFile, "-instances", "2", "-seed", "7", "-window", "1s", "-window", "100ms"))
	assert.NotEqual(t, r, simulated("", simulatedFile, "-instances", "2", "-seed", "8", "-window", "1s", "-window", "100ms"))
}

func TestSimulate_Formats(t *testing.T) {
	t.Parallel()
	for format, want := range map[string]string{
		"json": `"pipeline": "orders"`, "svg": "<svg", "html": "<!DOCTYPE html>", "table": "Simulation of pipeline orders",
	} {
		r := simulated("", simulatedFile, "-o", format)
		assert.Zero(t, r.status, r.err)
		assert.Contains(t, r.out, want, format)
		out := filepath.Join(t.TempDir(), "out")
		assert.Equal(t, result{}, simulated("", simulatedFile, "-o", format, "-out", out))
		assert.True(t, r.out == read(t, out), format)
		both := simulated("", simulatedFile, "-o", format, "-against", simulatedFile)
		assert.Zero(t, both.status, both.err)
		assert.False(t, r.out == both.out, format)
	}
}

// A name in a file cannot change what a terminal shows.
func TestSimulate_HostileNames(t *testing.T) {
	const file = `pipelines: {"a\e[2J\u202e": {strategies: []}, b: {strategies: []}}`
	r := weir(file, "simulate", "-rate", "1", "-")
	assert.Equal(t, 2, r.status)
	assert.Equal(t, "weir simulate: -: -pipeline must name one of a\uFFFD[2J\uFFFD, b\n", r.err)
}

// A - is the standard output, as it is the standard input where a file is read.
func TestSimulate_OutDash(t *testing.T) {
	r := simulated("", simulatedFile, "-out", "-")
	assert.Contains(t, r.out, "Simulation of pipeline orders")
	assert.NoFileExists(t, "-")
}

func TestSimulate_Expect(t *testing.T) {
	assert.Zero(t, simulated("", simulatedFile, "-expect", "rejected > 10%", "-expect", "failed = 0").status)
	r := simulated("", simulatedFile, "-expect", "rejected < 1%", "-expect", "failed = 0", "-expect", "jain > 0.99")
	assert.Equal(t, 1, r.status)
	assert.Contains(t, r.out, "Simulation of", "the report shows why")
	assert.Equal(t, 2, strings.Count(r.err, "\n"), r.err)
	assert.Contains(t, r.err, "weir simulate: expected rejected < 1%, but rejected is ")
}

func TestSimulate_Against(t *testing.T) {
	lower := strings.Replace(read(t, simulatedFile), "permit_limit: 100", "permit_limit: 10", 1)
	r := simulated(lower, "-", "-against", simulatedFile, "-expect", "newly_refused = 0", "-expect", "no_longer_refused = 0")
	assert.Equal(t, 1, r.status)
	assert.Contains(t, r.out, "Comparison of simulate.yaml and -")
	assert.Contains(t, r.err, "expected newly_refused = 0, but")
	assert.NotContains(t, r.err, "no_longer_refused")
}

// The simple flags replace what the load file says.
func TestSimulate_Load(t *testing.T) {
	file := filepath.Join(t.TempDir(), "load.yaml")
	require.NoError(t, os.WriteFile(file, []byte(`
load: {for: 5s, closed: {clients: 2, think: {fixed: 1s}}, keys: {uniform: {count: 2}}}
service: {capacity: 1, latency: {fixed: 100ms}}
`), 0o600))
	r := resultOf(t, "-pipeline", "health", "-load", file, simulatedFile)
	assert.EqualValues(t, 8, r.Total.Offered, "every 1.1 s")
	assert.Equal(t, 2, r.Keys.Count)
	assert.Greater(t, r.Latency.Max, 150*time.Millisecond, "one of the two waits for the other")

	r = resultOf(t, "-pipeline", "health", "-load", file, "-capacity", "2", "-for", "2s", simulatedFile)
	assert.EqualValues(t, 2, r.Total.Offered)
	assert.Equal(t, 100*time.Millisecond, r.Latency.Max)

	r = resultOf(t, "-pipeline", "health", "-load", file, "-rate", "10", simulatedFile)
	assert.EqualValues(t, 50, r.Total.Offered)

	r = resultOf(t, "-pipeline", "health", "-clients", "3", "-think", "100ms", "-for", "10s", "-keys", "abuser:4", simulatedFile)
	assert.Equal(t, 5, r.Keys.Count)
	assert.InDelta(t, 300, r.Total.Offered, 90, "three clients, ten times a second")
}

func TestSimulate_Recording(t *testing.T) {
	dir := t.TempDir()
	csv, log := filepath.Join(dir, "r.csv"), filepath.Join(dir, "access.log")
	require.NoError(t, os.WriteFile(csv, []byte("when,who\n0,a\n1.5,b\nlater,c\n2,a\n"), 0o600))
	require.NoError(t, os.WriteFile(log, []byte(`{"ts":1700000000.5,"request":{"remote_ip":"10.0.0.1"}}`+"\n"), 0o600))
	fields := []string{"-pipeline", "orders", "-csv", csv, "-time-field", "when", "-key-field", "who"}

	r := weir("", append(append([]string{"simulate"}, fields...), simulatedFile)...)
	assert.Equal(t, 2, r.status)
	assert.Contains(t, r.err, csv+":4: ")
	r = weir("", append(append([]string{"simulate", "-skip-bad"}, fields...), simulatedFile)...)
	assert.Zero(t, r.status)
	assert.Contains(t, r.err, "weir simulate: left out 1 line, the first because "+csv+":4: ")
	assert.Contains(t, r.out, "3 requests, 100.0% satisfied")

	assert.EqualValues(t, 1, resultOf(t, "-pipeline", "orders", "-access-log", log, simulatedFile).Total.Offered)
}

func TestSimulate_Strict(t *testing.T) {
	r := simulated("", simulatedFile, "-strict")
	assert.Equal(t, 1, r.status)
	assert.Empty(t, r.out)
	assert.Contains(t, r.err, simulatedFile+":3:")
	assert.Zero(t, simulated("", simulatedFile, "-strict", "-key", "user", "-store", "redis").status)
}

// Nothing that a file of weir gateway names is opened.
func TestSimulate_Gateway(t *testing.T) {
	t.Parallel()
	const file = `
gateway:
  listen: ":0"
  keys: {user: {header: X-User}}
  stores: {redis: {redis: "redis://redis.invalid:6379"}}
  upstreams: {shop: {addresses: ["http://shop.invalid"]}}
  policies:
    few: {limiter: few, cost: 2}
    slow: {limiter: slow, max_wait: 50ms}
    watched: {limiter: few, shadow: true}
  global: [few]
  routes:
    - {match: "GET /orders", upstream: shop, pipeline: orders}
    - {match: /fast, upstream: shop, exempt: true, policies: [watched]}
    - {match: /slow, upstream: shop, exempt: true, policies: [slow]}
`
	limiters := "limiters:\n  few: {partitioned: {key: user, each: {fixed_window: {permit_limit: 20, window: 1h}}}}\n" +
		"  slow: {concurrency: {permit_limit: 1, queue_limit: 1000}}\n"
	all := strings.Replace(read(t, simulatedFile), "limiters:\n", limiters, 1) + file
	r := simulated(all, "-")
	assert.Zero(t, r.status, r.err)
	assert.Contains(t, r.out, `The key "user" is the key of the request.`)
	assert.Contains(t, r.out, `The store "redis" is simulated in memory`)

	assert.Contains(t, simulated(all, "-", "-pipeline", "none").err, "must be one of orders, health, gateway/GET /orders, gateway//fast, gateway//slow")
	r = simulated(all, "-", "-pipeline", "gateway/GET /orders", "-keys", "uniform:1")
	assert.Zero(t, r.status, r.err)
	assert.Contains(t, r.out, "  orders/RateLimiter", "what the policy lets through comes to the pipeline")
	assert.Contains(t, r.out, "629  99.2%  gateway/GET /orders/few", "10 of 639 take two of 20 permits each")
	assert.Contains(t, r.out, `The upstream "shop" is the simulated service, without circuit breakers.`)
	assert.Contains(t, simulated(all, "-", "-pipeline", "gateway//fast").out, "100.0% satisfied", "in shadow")

	r = simulated(all, "-", "-pipeline", "gateway//slow", "-o", "json", "-rate", "200")
	var slow simulate.Result
	require.NoError(t, json.Unmarshal([]byte(r.out), &slow), r.err)
	assert.Positive(t, slow.Total.Rejected)
	assert.Positive(t, slow.Total.Queued)
	assert.LessOrEqual(t, slow.Wait.Max, 50*time.Millisecond)
}

func TestSimulate_Usage(t *testing.T) {
	none := filepath.Join(t.TempDir(), "none")
	for want, args := range map[string][]string{
		"which file?":            {"-rate", "1"},
		"which load?":            {simulatedFile},
		`found "-rate" after it`: {simulatedFile, "-rate"},
		"-pipeline must name one of orders, health":               {"-rate", "1", simulatedFile},
		"it has no pipeline order, must be one of orders, health": {"-rate", "1", "-pipeline", "order", simulatedFile},
		"only one of -rate, -clients, -csv and -access-log":       {"-rate", "1", "-clients", "2", simulatedFile},
		"-o must be table, json, svg or html, found pdf":          {"-rate", "1", "-o", "pdf", simulatedFile},
		"-rate must be more than 0 and at most 1e9, got 0":        {"-rate", "0", simulatedFile},
		"-window must be more than 0":                             {"-rate", "1", "-window", "0s", simulatedFile},
		"needs -against":                                          {"-rate", "1", "-expect", "newly_refused < 1", simulatedFile},
		"there is no operator":                                    {"-rate", "1", "-expect", "rejected => 1", simulatedFile},
		"the scenario has no window of 3s; it has most(1s)":       {"-rate", "1", "-expect", "most(3s) < 1", none},
		"write which window is meant: most(1s) or most(3s)":       {"-rate", "1", "-window", "1s", "-window", "3s", "-expect", "most < 1", none},
		"-out would replace " + simulatedFile:                     {"-rate", "1", "-out", simulatedFile, simulatedFile},
		"-out must be a file, and . is a directory":               {"-rate", "1", "-out", ".", none},
		"-poisson needs":                                          {"-clients", "1", "-poisson", simulatedFile},
		"-think needs":                                            {"-rate", "1", "-think", "1s", simulatedFile},
		"-key-field needs":                                        {"-rate", "1", "-key-field", "x", simulatedFile},
		"-keys must be":                                           {"-rate", "1", "-keys", "zipf", simulatedFile},
		"the number of -keys must be at least 1":                  {"-rate", "1", "-keys", "zipf:0", simulatedFile},
		"-clients must be at most the number of requests that":    {"-clients", "1000000000", simulatedFile},
		"-for must be more than 0":                                {"-rate", "1", "-for", "-1s", simulatedFile},
		"-latency must be more than 0":                            {"-rate", "1", "-latency", "0s", simulatedFile},
		"-instances must be at most 10000":                        {"-rate", "1", "-instances", "10001", simulatedFile},
		"the rules of the rate limit service are not simulated":   {"-rate", "1", "testdata/rls.yaml"},
		"-keys cannot replace them":                               {"-csv", "../../simulate/testdata/requests.csv", "-keys", "zipf:5", simulatedFile},
		"only one of the files can be -":                          {"-load", "-", "-"},
		"no such file":                                            {"-rate", "1", none},
		"opening the recording":                                   {"-csv", none, simulatedFile},
		"none/out":                                                {"-rate", "1", "-pipeline", "health", "-out", none + "/out", simulatedFile},
		"flag provided but not defined":                           {"-stirct", simulatedFile},
	} {
		r := weir("", append([]string{"simulate"}, args...)...)
		assert.Equal(t, 2, r.status, want)
		assert.Empty(t, r.out, want)
		assert.Contains(t, r.err, want)
		assert.NotContains(t, r.err, "simulate: simulate:")
	}
	for want, args := range map[string][]string{
		"-:1:1: unknown field": {"-load", "-", simulatedFile},
		"-:1:16: ":             {"-rate", "1", "-"},
	} {
		r := weir("pipelines: {a: {}}", append([]string{"simulate"}, args...)...)
		assert.Equal(t, 1, r.status, want)
		assert.Contains(t, r.err, want)
	}
	help := weir("", "simulate", "-h")
	assert.Zero(t, help.status)
	assert.Contains(t, help.out, "-access-log")
}

// A kind that only the program has can be checked, but not simulatedFile.
func TestSimulate_UnknownKind(t *testing.T) {
	r := weir("pipelines: {a: {strategies: [strange: {}]}}", "simulate", "-rate", "1", "-")
	assert.Equal(t, 2, r.status)
	assert.Contains(t, r.err, "there is no such kind of strategy")
}

func TestSchema_Load(t *testing.T) {
	r := weir("", "schema", "-load")
	assert.Zero(t, r.status, r.err)
	assert.Contains(t, r.out, `"section.load"`)
	assert.NotContains(t, r.out, `"pipelines"`)
}
