// Package bubble gives a program that is no test the time of testing/synctest. It is the one door of weir to package testing: Go has
// bubbles only there, internal/synctest cannot be imported, and the linker refuses a reference to its functions by go:linkname.
// Package testing adds no flags to a program unless it calls testing.Init, which nothing here does.
package bubble

import (
	"testing"
	"testing/synctest"
)

// Run calls f in a bubble of its own, and returns when each goroutine of the bubble has ended. It must not be called in a
// bubble. That an empty [testing.T] is enough is not documented: a test of package simulate builds an ordinary program, and fails with a
// release of Go in which it is not.
func Run(f func()) { synctest.Test(new(testing.T), func(*testing.T) { f() }) }

// Wait returns when every other goroutine of the bubble waits.
func Wait() { synctest.Wait() }
