package main

import (
	"os"
	"time"

	"github.com/weir-go/weir/simulate"
)

// progress returns a function that shows how much of a load is simulated, if the standard error is a terminal, and a
// function that removes what was shown.
func (c *command) progress(name string, load simulate.Load) (show func(elapsed time.Duration), done func()) {
	f, ok := c.stderr.(*os.File)
	if !ok {
		return nil, func() {}
	}
	if info, err := f.Stat(); err != nil || info.Mode()&os.ModeCharDevice == 0 {
		return nil, func() {}
	}
	length := load.For
	if load.Recording != nil && length == 0 {
		length = load.Recording.Length + 1
	}
	shown := false
	show = func(elapsed time.Duration) {
		shown = true
		c.complain("\r\x1b[K%s: %v of %v, %d %%", name, elapsed.Round(time.Second), length, int64(float64(elapsed)/float64(length)*100))
	}
	return show, func() {
		if shown {
			c.complain("\r\x1b[K")
		}
	}
}
