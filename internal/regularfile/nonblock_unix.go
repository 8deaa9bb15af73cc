//go:build unix

package regularfile

import "syscall"

// nonblocking has a pipe opened at once. It makes no difference to a file.
const nonblocking = syscall.O_NONBLOCK
