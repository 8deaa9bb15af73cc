//go:build !linux

package main

import "time"

// sleepUntil sleeps.
func sleepUntil(due time.Time) { time.Sleep(time.Until(due)) }
