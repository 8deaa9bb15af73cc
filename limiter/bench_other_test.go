//go:build !unix

package limiter

import (
	"testing"
	"time"
)

// processorTime is 0: package syscall does not have it for this system.
func processorTime(*testing.B) time.Duration { return 0 }
