// Package realtime is for tests that go by real time, which fail on a machine that is too slow and are then run again.
package realtime

import "regexp"

// NotLate matches the output of a test that has failed for another reason than that it was late: a race, a panic, more
// permits than a limit allows, a leaked goroutine. Such a test is not run again.
var NotLate = regexp.MustCompile(`(?m)^\s*(WARNING: DATA RACE|panic: |fatal error: )|were granted of|server's clock, at most|` +
	`were held at once|granted by limits of|granted, limit|found unexpected goroutines`)
