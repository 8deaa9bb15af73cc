// Package goroutine says which goroutine a function runs on.
package goroutine

import (
	"bytes"
	"runtime"
	"strconv"
)

// ID returns the number of the goroutine that it is called on, 0 if that cannot be found out. Go has no call
// for it; a stack trace begins with "goroutine 18 [running]:".
//
// It serves one purpose: a function of the program that waits for its own caller, such as a build function
// that reloads the registry, would hang, and gets an error instead. Call it only where something is built,
// loaded or disposed of: it takes about a microsecond.
func ID() uint64 {
	var trace [64]byte
	fields := bytes.Fields(trace[:runtime.Stack(trace[:], false)])
	if len(fields) < 2 {
		return 0
	}
	n, err := strconv.ParseUint(string(fields[1]), 10, 64)
	if err != nil {
		return 0
	}
	return n
}
