package bench

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/weir-go/weir/tools/testserver"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(testserver.Runner(m)) }
