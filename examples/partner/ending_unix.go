//go:build unix

package main

import (
	"os"
	"os/signal"
	"syscall"
)

// endings are the signals that end the program.
var endings = []os.Signal{os.Interrupt, syscall.SIGTERM, syscall.SIGHUP}

// ignoreBrokenPipe makes a reader of the output that goes away an error of a write. By default it would end the program
// before the program has ended what it has started.
func ignoreBrokenPipe() { signal.Ignore(syscall.SIGPIPE) }
