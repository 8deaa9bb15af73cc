//go:build !unix

package filewatch

import "os"

// NotifyHangup returns a nil channel: there is no such signal here.
func NotifyHangup() (signals <-chan os.Signal, stop func()) {
	return nil, func() {}
}
