package untimed_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"go.uber.org/goleak"

	"github.com/weir-go/weir/internal/untimed"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestIs(t *testing.T) {
	type begun struct{ untimed.Holding }
	assert.True(t, untimed.Is(&begun{untimed.HoldingIf(true)}))
	assert.False(t, untimed.Is(&begun{untimed.HoldingIf(false)}))
	assert.False(t, untimed.Is(1))
	assert.False(t, untimed.Is(nil))
}
