//go:build unix

package main

import (
	"os/signal"
	"syscall"
)

// ignoreBrokenPipes makes writes to a standard output or standard error that nothing reads any more fail. Otherwise they
// end the process: the gateway would end with the program that its log is piped into.
func ignoreBrokenPipes() { signal.Ignore(syscall.SIGPIPE) }
