//go:build !js

package rlsoracle

import (
	"io"
	"os"
	"testing"

	"github.com/sirupsen/logrus"
	"go.uber.org/goleak"

	"github.com/weir-go/weir/tools/testserver"
)

// The other service waits for new rules as long as the program runs.
func TestMain(m *testing.M) {
	logrus.SetOutput(io.Discard)
	goleak.VerifyTestMain(runner{testserver.Runner(m)},
		goleak.IgnoreAnyFunction("github.com/envoyproxy/ratelimit/src/service.NewService.func1"))
}

// A runner removes what the tests have built.
type runner struct{ goleak.TestingM }

func (r runner) Run() int {
	defer func() {
		if builds != "" {
			_ = os.RemoveAll(builds)
		}
	}()
	return r.TestingM.Run()
}
