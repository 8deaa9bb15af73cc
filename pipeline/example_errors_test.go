package pipeline_test

import "time"

// busyError says when it is worth trying again.
type busyError struct{}

func (busyError) Error() string                     { return "busy" }
func (busyError) RetryAfter() (time.Duration, bool) { return 2 * time.Second, true }
