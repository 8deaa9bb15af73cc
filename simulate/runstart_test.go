package simulate

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/internal/clock"
	"github.com/weir-go/weir/registry"
)

// Two processes have the same result only if their runs begin at the same part of a slot of time: the clock counts from
// the start of the process.
func TestRun_BeginsAtASlot(t *testing.T) {
	inner := config(`{pipelines: {p: {strategies: [{timeout: {timeout: 1s}}]}}}`)
	var began time.Duration
	_, err := Run(t.Context(), Scenario{
		Load: Load{For: time.Second, Open: &Open{Rate: ConstantRate{1}}},
		Config: func(s *Setup) (registry.Change, error) {
			began = clock.Now()
			return inner(s)
		},
	})
	require.NoError(t, err)
	assert.Zero(t, began%(24*time.Hour))
}
