//go:build !js

package rlsoracle

import (
	"io"
	"testing"

	"github.com/sirupsen/logrus"
	"go.uber.org/goleak"

	"github.com/weir-go/weir/tools/testserver"
)

// The other service waits for new rules as long as the program runs.
func TestMain(m *testing.M) {
	logrus.SetOutput(io.Discard)
	goleak.VerifyTestMain(testserver.Runner(m), goleak.IgnoreAnyFunction("github.com/envoyproxy/ratelimit/src/service.NewService.func1"))
}
