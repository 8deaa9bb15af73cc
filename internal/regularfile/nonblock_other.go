//go:build !unix

package regularfile

// No path leads to a pipe that opening waits for.
const nonblocking = 0
