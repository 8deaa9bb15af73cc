package main

import (
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/weir-go/weir/tools/testserver"
)

// asProgram is an environment variable that makes the test binary the program.
const asProgram = "WEIR_TEST_PARTNER"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) == "1" || len(os.Args) > 1 && os.Args[1] == "serve" { // started by a test
		main()
		return
	}
	goleak.VerifyTestMain(testserver.Runner(m))
}
