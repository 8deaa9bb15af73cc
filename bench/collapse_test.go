package bench

import (
	"fmt"
	"testing"
)

// overcommitted are more processors than this machine may have, with at least as many goroutines. The operating system then
// stops a goroutine in the middle of a call for milliseconds, and the others show whether they wait for it.
var overcommitted = []struct{ processors, goroutines int }{{8, 8}, {8, 64}, {16, 8}, {16, 64}}

// BenchmarkCollapse shows whether the paths on which goroutines meet collapse: one limiter that is refilled in each
// call, one that rejects, and 10,000 keys that are refilled in each call.
func BenchmarkCollapse(b *testing.B) {
	run := func(path string, contenders []contender) {
		for _, over := range overcommitted {
			for _, c := range contenders {
				name := fmt.Sprintf("path=%s/processors=%d/by=%s/goroutines=%d", path, over.processors, c.name, over.goroutines)
				b.Run(name, func(b *testing.B) {
					op := c.start(b)
					share(b, over.processors, over.goroutines, func() func() bool { return op })
				})
			}
		}
	}
	run("one-refilled", refilledOnes)
	run("one-rejected", rejectingOnes)

	const n = 10_000
	st := openWhenAsked(b, refilled, n)
	for _, by := range byDraw {
		d := newDraws(n, by.zipf)
		for _, over := range overcommitted {
			for i, c := range refilled {
				name := fmt.Sprintf("path=keys-%s/processors=%d/by=%s/goroutines=%d", by.name, over.processors, c.name, over.goroutines)
				b.Run(name, func(b *testing.B) {
					st := st[i]()
					share(b, over.processors, over.goroutines, func() func() bool { return d.each(st) })
				})
			}
		}
	}
}
