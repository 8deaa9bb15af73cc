//go:build unix

package drill

import (
	"os"
	"syscall"
)

var stop, goOn os.Signal = syscall.SIGSTOP, syscall.SIGCONT
