package reload_test

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/reload"
)

func TestExplain(t *testing.T) {
	for _, name := range []string{"testdata/example.yaml", "testdata/valid/everything.yaml", "testdata/valid/stores.yaml"} {
		f, err := reload.Parse(name, read(t, name), functions())
		require.NoError(t, err)
		var b strings.Builder
		require.NoError(t, f.Explain(&b))
		golden(t, strings.TrimSuffix(name, ".yaml")+".txt", b.String())
	}
}

func TestExplain_NamedPipelines(t *testing.T) {
	name := "testdata/example.yaml"
	f, err := reload.Parse(name, read(t, name), functions())
	require.NoError(t, err)
	var b strings.Builder
	require.NoError(t, f.Explain(&b, "reports"))
	assert.Equal(t, `reports
  1. each execution: timeout with timeout: 1m, name: Whole
  2. each execution: rate_limiter with limiter: its own concurrency limiter: 4 at once; up to 16 wait, the newest first
  3. each execution: pipeline with name: orders
`, b.String())
	assert.EqualError(t, f.Explain(&b, "report"), `reload: there is no pipeline "report" in the file, did you mean "reports"?`)
	assert.ErrorIs(t, f.Explain(broken{}), os.ErrClosed)
}

type broken struct{}

func (broken) Write([]byte) (int, error) { return 0, os.ErrClosed }

func TestExplain_KindsOfTheProgram(t *testing.T) {
	k := reload.NewKinds()
	registerEverything(k)
	f, err := reload.Parse("own.yaml", []byte(ownKindsFile), k)
	require.NoError(t, err)
	var b strings.Builder
	require.NoError(t, f.Explain(&b))
	assert.Equal(t, `orders
  1. each execution: shedding with threshold: 0.5, wait: off, classes: [a b], weights: map[a:1 b:255], order: newest_first, inner: {3}
  2. each execution: noop
  3. each execution: noop
  4. each execution: retry with max_retries: 3, delay: 2s, handle: transient, max_retry_after: 1m
  5. each attempt: rate_limiter with permits: cost, limiter: elsewhere (remote with address: redis:6379)
  6. each attempt: rate_limiter with name: Second, shadow: true, limiter: its own remote with address: x
limiter per-client is used by no pipeline
`, b.String())

	k.AcceptUnknown()
	f, err = reload.Parse("own.yaml", []byte("pipelines: {a: {strategies: [caching: {size: 5}, rate_limiter: {faraway: 5}]}}"), k)
	require.NoError(t, err)
	b.Reset()
	require.NoError(t, f.Explain(&b))
	assert.Equal(t, `a
  1. each execution: caching, which only the program knows
  2. each execution: rate_limiter with limiter: its own faraway, which only the program knows
`, b.String())
}
