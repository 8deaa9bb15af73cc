package registry

import (
	"bytes"
	"runtime"
	"strconv"
)

// goroutine returns the number of the goroutine that it runs on, 0 if that cannot
// be found out. Go has no call for it; what a stack trace begins with has been
// "goroutine 18 [running]:" ever since.
//
// It serves one purpose: a build function that asks the registry for what waits for
// itself would hang for ever, and gets an error instead. It is asked for only where
// something is built.
func goroutine() uint64 {
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
