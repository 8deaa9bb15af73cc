package jobs

import (
	"sync"

	"github.com/weir-go/weir/limiter"
)

// counts are the figures of limiters in this process.
type counts struct {
	mu  sync.Mutex
	all map[Ref]*limiter.Statistics // by limiter, without key
}

// add counts a verdict: for the limits of a job that starts, or for the one that makes it wait.
func (c *counts) add(needs []need, v verdict) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if v.granted {
		for _, n := range needs {
			c.of(n.ref).SuccessfulLeases++
		}
		return
	}
	c.of(v.by).FailedLeases++
}

func (c *counts) of(r Ref) *limiter.Statistics {
	r.Key = ""
	s := c.all[r]
	if s == nil {
		if c.all == nil {
			c.all = map[Ref]*limiter.Statistics{}
		}
		s = &limiter.Statistics{}
		c.all[r] = s
	}
	return s
}
