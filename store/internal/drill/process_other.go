//go:build !unix

package drill

import "os"

// No signal stops a process here.
var stop, goOn os.Signal
