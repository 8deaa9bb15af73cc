package weirfailsafe_test

import (
	"context"
	"testing"

	"github.com/failsafe-go/failsafe-go/retrypolicy"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/strategies/weirfailsafe"
)

// A callback without a result is none for the strategies outside, too.
func TestStrategy_NoResult(t *testing.T) {
	p := weir.Must(pipeline.New("orders",
		weirfailsafe.New(nil, retrypolicy.NewBuilder[int]().Build()),
		weirfailsafe.New(nil, retrypolicy.NewBuilder[string]().Build()),
	))
	ran := 0
	require.NoError(t, p.Execute(t.Context(), func(context.Context) error { ran++; return nil }))
	assert.Equal(t, 1, ran)
}
