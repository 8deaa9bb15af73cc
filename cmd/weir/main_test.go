package main

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		main()
		return
	}
	goleak.VerifyTestMain(m)
}

const good = `
limiters:
  per-client:
    partitioned: {key: client_ip, each: {fixed_window: {permit_limit: 20, window: 1s}}}
pipelines:
  orders:
    strategies:
      - retry: {max_retries: 5, handle: temporary}
      - rate_limiter: {limiter: per-client}
`

const bad = `pipelines:
  orders:
    strategies:
      - retry: {max_retires: 5}
      - timeout: {timeout: 5}
`

type result struct {
	status   int
	out, err string
}

func weir(stdin string, args ...string) result {
	var out, err bytes.Buffer
	status := run(args, strings.NewReader(stdin), &out, &err)
	return result{status, out.String(), err.String()}
}

func write(t *testing.T, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "weir.yaml")
	require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
	return path
}

func TestCheck(t *testing.T) {
	right, mistaken := write(t, good), write(t, bad)

	r := weir("", "check", right)
	assert.Equal(t, result{0, right + ": ok: 1 pipeline, 1 named limiter\n", ""}, r)

	r = weir("", "check", mistaken, right)
	assert.Equal(t, 1, r.status)
	assert.Contains(t, r.out, right+": ok")
	assert.Contains(t, r.err, mistaken+":4:17: ")
	assert.Contains(t, r.err, mistaken+":5:28: ")
	assert.Contains(t, r.err, `did you mean "max_retries"?`)

	r = weir(good, "check", "-")
	assert.Equal(t, 0, r.status)
}

func TestCheck_Strict(t *testing.T) {
	r := weir(good, "check", "-strict", "-")
	assert.Equal(t, 1, r.status)
	assert.Contains(t, r.err, "client_ip")
	assert.Contains(t, r.err, "temporary")
	r = weir(good, "check", "-strict", "-key", "client_ip", "-handle=temporary", "-permits", "cost", "-")
	assert.Equal(t, 0, r.status, r.err)
}

func TestFlagsAfterTheFile(t *testing.T) {
	assert.Equal(t, result{2, "", "weir explain: flags stand before the file, found -request after it\n"},
		weir(good, "explain", "-", "-request", "GET /"))
	assert.Equal(t, result{2, "", "weir gateway: the file must follow -config: weir gateway -config weir.yaml\n"},
		weir("", "gateway", "weir.yaml"))
}

func TestExplain(t *testing.T) {
	r := weir(good, "explain", "-")
	assert.Equal(t, 0, r.status, r.err)
	assert.Contains(t, r.out, "orders")
	assert.Contains(t, r.out, "max_retries: 5")
	r = weir(good, "explain", "-", "nothing")
	assert.Equal(t, 2, r.status, "the file is right, the command is not")
	assert.Contains(t, r.err, "nothing")
	r = weir("pipelines: {\"a\\e[31m\\nb\": {strategies: []}}", "explain", "-")
	assert.Equal(t, 0, r.status)
	assert.Contains(t, r.out, `"a\x1b[31m\nb"`)
	assert.NotContains(t, r.out, "\x1b")
	assert.Equal(t, 1, weir(bad, "explain", "-").status)
}

func TestUsage(t *testing.T) {
	for name, args := range map[string][]string{
		"none":             nil,
		"unknown":          {"chekc"},
		"no file":          {"check"},
		"unknown flag":     {"check", "-stirct", "-"},
		"missing file":     {"check", filepath.Join(t.TempDir(), "nothing.yaml")},
		"key with no name": {"check", "-key", "", "-"},
	} {
		t.Run(name, func(t *testing.T) {
			r := weir(good, args...)
			assert.Equal(t, 2, r.status)
			assert.Empty(t, r.out)
			assert.NotEmpty(t, r.err)
		})
	}
	r := weir("", "help")
	assert.Equal(t, 0, r.status)
	assert.Contains(t, r.out, "weir check")
	r = weir("", "check", "-h")
	assert.Equal(t, 0, r.status)
	assert.Contains(t, r.out, "weir check", "what is asked for is no error")
	assert.Empty(t, r.err)
}

// A full is an output that takes nothing, such as /dev/full.
type full struct{}

func (full) Write([]byte) (int, error) { return 0, errors.New("no space left") }

func TestRun_OutputFails(t *testing.T) {
	for _, args := range [][]string{{"check", "-"}, {"explain", "-"}, {"schema"}, {"help"}, {"check", "-h"}} {
		var stderr bytes.Buffer
		assert.Equal(t, 2, run(args, strings.NewReader(good), full{}, &stderr), args)
		assert.Contains(t, stderr.String(), "no space left")
	}
}

// An endless file is not read to its end.
func TestRun_EndlessInput(t *testing.T) {
	t.Parallel()
	var stdout, stderr bytes.Buffer
	assert.Equal(t, 2, run([]string{"check", "-"}, endless{}, &stdout, &stderr))
	assert.Contains(t, stderr.String(), "-: too large: it has more than 8388608 bytes")
}

type endless struct{}

func (endless) Read(p []byte) (int, error) { return len(p), nil }

func TestRun_UnreadableFile(t *testing.T) {
	dir := t.TempDir()
	r := weir("", "check", dir)
	assert.Equal(t, 2, r.status)
	assert.Contains(t, r.err, dir+": not a regular file but a directory")
	r = weir("", "check", filepath.Join(dir, "none"))
	assert.Equal(t, 2, r.status)
	assert.Contains(t, r.err, "none: ")
	assert.Equal(t, 1, strings.Count(r.err, dir), "the path is there once")
}
