//go:build !unix

package filewatch

import "os"

// NotifyHangup returns a channel for [Options.Signals] that has a SIGHUP, and the
// function that ends that. Where there is no such signal the channel is nil.
func NotifyHangup() (signals <-chan os.Signal, stop func()) {
	return nil, func() {}
}
