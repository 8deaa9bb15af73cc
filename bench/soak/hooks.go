package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"time"
)

// safely runs f on another goroutine, so that a panic or a Goexit of a hook ends nothing else.
func safely(f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() {
			// A strategy may have wrapped the panic of a hook in another value.
			if p := recover(); p != nil && !strings.Contains(fmt.Sprint(p), errHook.Error()) {
				panic(p)
			}
		}()
		f()
	}()
	<-done
}

var errHook = errors.New("soak: a hook panics")

// misbehave panics in one of onceIn calls, and ends the goroutine in another one.
func misbehave(onceIn int) {
	switch rand.IntN(onceIn) {
	case 0:
		panic(errHook)
	case 1:
		runtime.Goexit()
	}
}

// pause waits for a random time up to d. It reports whether ctx has not ended.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(time.Duration(rand.Int64N(int64(d) + 1)))
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}
