package weirhttp

import (
	"cmp"
	"context"
	"math"
	"net/http"
	"sync"
	"time"

	"github.com/weir-go/weir/internal/clock"
	"github.com/weir-go/weir/internal/saturate"
	"github.com/weir-go/weir/internal/validate"
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/limiter/custom"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/strategies/ratelimit"
)

// maxPausedHosts bounds how many hosts are paused at the same time. The requests to one more are not held back.
const maxPausedHosts = 1024

// GateOptions are the options of a [Gate]. With the zero value no request waits.
type GateOptions struct {
	// QueueLimit is how many requests to each host can wait for the end of its pause. All others are rejected. The
	// default is 0.
	QueueLimit int `json:"queue_limit,omitempty" yaml:"queue_limit,omitempty"`
	// MaxPause bounds a pause: requests go on earlier than the server asked if it asks for more. The default is a
	// minute; -1 is no limit.
	MaxPause time.Duration `json:"max_pause,omitempty" yaml:"max_pause,omitempty"`
}

// Validate returns a [weir.OptionsError] with everything that is wrong with o, or nil. A nil o is valid.
func (o *GateOptions) Validate() error {
	var problems validate.Problems
	if o != nil {
		problems.AtLeast("QueueLimit", o.QueueLimit, 0)
		if o.MaxPause < -1 {
			problems.Add("MaxPause", o.MaxPause, "must be at least 0, or -1 for no limit")
		}
	}
	return problems.Err("weirhttp")
}

// A Gate is a strategy that pauses hosts: if a server answers one request with 429 or 503 and Retry-After, other requests to
// the host would get the same answer. During the pause requests are rejected with a [*ratelimit.RejectedError], which has the
// remaining time, or they wait if the options allow it. Put it inside the retry:
//
//	gate, err := weirhttp.NewGate(nil)
//	p, err := pipeline.New("api", retry.New(nil), gate, timeout.New(5*time.Second, nil))
//	transport, err := weirhttp.NewTransport(p, nil)
//
// When the pause ends, all waiting requests go on at once: put a limiter inside the Gate to spread them. At most 1024 hosts
// are paused at the same time. In a pipeline that is not that of a [Transport], a Gate does nothing: it does not know the host. Make a Gate with [NewGate]. It can be in several pipelines, and is safe for concurrent use.
type Gate struct {
	options GateOptions
	enter   *ratelimit.Strategy

	mu    sync.Mutex
	hosts map[string]*pause
}

// A pause is the pause of one host.
type pause struct {
	until   time.Duration // the clock.Now at which the pause ends
	waiting int           // requests
}

// NewGate returns a Gate. If o is nil, the defaults apply. The error is a [weir.OptionsError].
func NewGate(o *GateOptions) (*Gate, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	g := &Gate{options: *cmp.Or(o, new(GateOptions)), hosts: make(map[string]*pause)}
	if g.options.MaxPause = cmp.Or(g.options.MaxPause, time.Minute); g.options.MaxPause < 0 {
		g.options.MaxPause = math.MaxInt64
	}
	g.enter = ratelimit.New(entry{g}, nil)
	return g, nil
}

// Execute runs next unless the host is paused, and pauses the host if the response asks for it. It implements
// [pipeline.Strategy].
func (g *Gate) Execute(ctx context.Context, next pipeline.Next) (any, error) {
	value, err := g.enter.Execute(ctx, next)
	if resp, ok := value.(*http.Response); ok && resp != nil {
		switch resp.StatusCode {
		case http.StatusTooManyRequests, http.StatusServiceUnavailable:
			wait, _ := retryAfterOf(resp)
			if host := HostFrom(ctx); host != "" && wait > 0 {
				g.pause(host, min(wait, g.options.MaxPause))
			}
		}
	}
	return value, err
}

// pause holds back requests to the host for d from now. It never shortens a pause.
func (g *Gate) pause(host string, d time.Duration) {
	now := clock.Now()
	g.mu.Lock()
	defer g.mu.Unlock()
	p := g.hosts[host]
	if p == nil {
		if len(g.hosts) >= maxPausedHosts {
			for other, p := range g.hosts {
				if p.until <= now && p.waiting == 0 {
					delete(g.hosts, other)
				}
			}
		}
		if len(g.hosts) >= maxPausedHosts {
			return
		}
		p = &pause{until: now}
		g.hosts[host] = p
	}
	p.until = max(p.until, saturate.Add(now, d))
}

// An entry is the limiter of the Gate, which rejects requests to hosts that are paused.
type entry struct{ *Gate }

// TryAcquire is part of [limiter.Limiter]. The strategy does not call it.
func (g entry) TryAcquire(ctx context.Context, n int) (limiter.Lease, error) {
	return g.Acquire(ctx, n)
}

// Acquire waits for the end of the host's pause if the queue has room. It does not wait for a pause that outlasts the deadline
// of ctx.
func (g entry) Acquire(ctx context.Context, n int) (limiter.Lease, error) {
	if err := pipeline.ContextError(ctx); err != nil {
		return limiter.Lease{}, err
	}
	left, err := g.wait(ctx, HostFrom(ctx))
	switch {
	case err != nil:
		return limiter.Lease{}, err
	case left > 0:
		return custom.Rejected(left, "paused as the server asked"), nil
	default:
		return custom.Granted(n, nil), nil
	}
}

// wait waits for the end of the host's pause. left is above 0 if the request must not wait: the queue is full, or the pause
// outlasts the deadline.
func (g *Gate) wait(ctx context.Context, host string) (left time.Duration, err error) {
	deadline, bounded := ctx.Deadline()
	g.mu.Lock()
	defer g.mu.Unlock()
	p := g.hosts[host]
	if p == nil {
		return 0, nil
	}
	if left = p.until - clock.Now(); left <= 0 || p.waiting >= g.options.QueueLimit {
		return left, nil
	}
	p.waiting++ // it keeps the place if the pause is renewed
	defer func() { p.waiting-- }()
	for left > 0 && err == nil {
		if bounded && time.Until(deadline) <= left {
			return left, nil
		}
		err = g.sleep(ctx, left)
		left = p.until - clock.Now()
	}
	return 0, err
}

// sleep unlocks the Gate for d, or until ctx ends.
func (g *Gate) sleep(ctx context.Context, d time.Duration) error {
	g.mu.Unlock()
	defer g.mu.Lock()
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return pipeline.ContextError(ctx)
	}
}
