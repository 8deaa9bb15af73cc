package bench

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/weir-go/weir/internal/testserver"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(testserver.Runner(m)) }
