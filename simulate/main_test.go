package simulate

import (
	"testing"

	"go.uber.org/goleak"

	_ "github.com/weir-go/weir/reload/adaptive" // files can have every kind
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
