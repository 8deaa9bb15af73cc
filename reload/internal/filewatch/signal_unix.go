//go:build unix

package filewatch

import (
	"os"
	"os/signal"
	"syscall"
)

// NotifyHangup returns a channel for [Options.Signals] that has a SIGHUP, and the
// function that ends that. Where there is no such signal the channel is nil.
//
// From here on a SIGHUP does not end the process any more, as it does again after
// stop: call it last of all. Signals that come while one is waiting to be served
// are served with it.
func NotifyHangup() (signals <-chan os.Signal, stop func()) {
	c := make(chan os.Signal, 1)
	signal.Notify(c, syscall.SIGHUP)
	return c, func() { signal.Stop(c) }
}
