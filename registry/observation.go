package registry

import (
	"strings"
	"sync"

	"github.com/weir-go/weir/internal/recovered"
	"github.com/weir-go/weir/limiter"
)

// observe calls ObserveLimiter once for each limiter.
func (r *Registry) observe(res *resource) {
	s, ok := res.value.(limiter.StatisticsProvider)
	if !ok || r.options.ObserveLimiter == nil {
		return
	}
	res.observation.begin(func() (stop func()) {
		recovered.Call("registry: ObserveLimiter", func() {
			stop = r.options.ObserveLimiter(strings.TrimSpace(res.id.space+" "+res.id.name), s)
		})
		return stop
	})
}

// An observation is the call of [Options.ObserveLimiter] for one limiter, and the function that it has returned.
type observation struct {
	mu    sync.Mutex
	begun bool
	ended bool
	stop  func()
}

// begin calls observe, once, unless the limiter is closed. If the limiter is closed during the call, begin calls
// stop.
func (o *observation) begin(observe func() (stop func())) {
	o.mu.Lock()
	if o.begun || o.ended {
		o.mu.Unlock()
		return
	}
	o.begun = true
	o.mu.Unlock()
	stop := observe()
	o.mu.Lock()
	if !o.ended {
		o.stop, stop = stop, nil
	}
	o.mu.Unlock()
	if stop != nil {
		stop()
	}
}

// end calls stop, if observe has returned it.
func (o *observation) end() error {
	o.mu.Lock()
	o.ended = true
	stop := o.stop
	o.stop = nil
	o.mu.Unlock()
	if stop != nil {
		stop()
	}
	return nil
}
