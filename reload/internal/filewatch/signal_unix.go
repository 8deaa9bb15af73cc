//go:build unix

package filewatch

import (
	"os"
	"os/signal"
	"syscall"
)

// NotifyHangup returns a channel for [Options.Signals] with SIGHUP, and a function that ends it. Where there is no
// such signal, the channel is nil.
//
// From then on SIGHUP does not end the process until stop is called: call stop last. Signals that come while one is
// waiting are handled with it.
func NotifyHangup() (signals <-chan os.Signal, stop func()) {
	c := make(chan os.Signal, 1)
	signal.Notify(c, syscall.SIGHUP)
	return c, func() { signal.Stop(c) }
}
