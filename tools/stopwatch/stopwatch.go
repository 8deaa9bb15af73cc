// Package stopwatch is for tests that assert how long something takes, which only a machine that does nothing else can tell:
// `make drill` runs them, with the variable WEIR_DRILL. Without it, a test asserts what must hold on any machine: order,
// counts, and bounds on them.
package stopwatch

import (
	"os"
	"testing"
)

// Running reports whether tests assert how long something takes.
var Running = os.Getenv("WEIR_DRILL") != ""

// Only skips a test that does nothing else.
func Only(t testing.TB) {
	t.Helper()
	if !Running {
		t.Skip("it goes by the clock: make drill runs it")
	}
}
