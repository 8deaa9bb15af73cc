package main

import (
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/weir-go/weir/tools/testserver"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "serve" { // started by a test
		main()
		return
	}
	goleak.VerifyTestMain(testserver.Runner(m))
}
