package model_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/registry"
	"github.com/weir-go/weir/reload"
)

// The test binary of this package does not import reload/adaptive.
func TestLearningKinds_WithoutTheImport(t *testing.T) {
	const missing = ` needs a program with: import _ "github.com/weir-go/weir/reload/adaptive"`
	own := reload.NewKinds()
	type options struct{}
	reload.RegisterLimiter(own, "mine", func(*registry.Builder, string, options) (limiter.Limiter, error) { return limiter.NewUnlimited(), nil })
	own.RegisterHandle("failed", func(any, error) bool { return true })
	for strategy, want := range map[string]string{
		"adaptive: {max_limit: 1}":    "f.yaml:1:46: pipelines.a.strategies[0].rate_limiter: a limiter of kind adaptive" + missing,
		"throttler: {}":               "f.yaml:1:46: pipelines.a.strategies[0].rate_limiter: a limiter of kind throttler" + missing,
		"mine: {}, handle: failed":    "f.yaml:1:64: pipelines.a.strategies[0].rate_limiter.handle: a handle" + missing,
		"adaptive: {}, handle: nope":  `there is no handle function "nope"`,
		"concurrency: {permit: 1}":    "permit",
		"fixed_window: {window: 1ms}": "permit_limit",
	} {
		_, err := reload.Parse("f.yaml", []byte("pipelines: {a: {strategies: [{rate_limiter: {"+strategy+"}}]}}"), own)
		assert.ErrorContains(t, err, want, strategy)
	}
	_, err := reload.Parse("f.yaml", []byte("pipelines: {a: {strategies: [{rate_limiter: {mine: {}}}]}}"), own)
	assert.NoError(t, err)
	schema, err := own.Schema()
	assert.NoError(t, err)
	assert.Contains(t, string(schema), `"limiter.adaptive"`)
}
