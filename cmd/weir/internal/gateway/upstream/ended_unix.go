//go:build unix

package upstream

import (
	"net"
	"syscall"
)

// ended reports whether the other side has closed the connection, and all that it has sent was read.
func ended(c net.Conn) (is bool) {
	s, ok := c.(syscall.Conn)
	if !ok {
		return false
	}
	raw, err := s.SyscallConn()
	if err != nil {
		return false
	}
	err = raw.Control(func(fd uintptr) {
		var b [1]byte
		n, _, err := syscall.Recvfrom(int(fd), b[:], syscall.MSG_PEEK) // does not wait: sockets of package net never do
		is = n == 0 && err == nil || err == syscall.ECONNRESET
	})
	return is || err != nil
}
