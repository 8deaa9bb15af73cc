package weirhttp

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir/internal/clock"
	"github.com/weir-go/weir/internal/saturate"
	"github.com/weir-go/weir/internal/validate"
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/limiter/custom"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/transport/internal/admission"
)

// ReasonPaused is the reason of a rejection by a [Gate]; see [limiter.Lease.Reason].
const ReasonPaused = "paused as the server asked"

// DefaultMaxHosts is the default of [GateOptions.MaxHosts].
const DefaultMaxHosts = 1024

// GateOptions are the options of a [Gate]. With the zero value no request waits.
type GateOptions struct {
	// MaxHosts bounds how many hosts can be paused at the same time. With 0, it is
	// [DefaultMaxHosts]. If there is one more, the gate forgets the pause that ends
	// first, which can be the new one. It never forgets a pause for which a request
	// waits.
	MaxHosts int `json:"max_hosts,omitempty" yaml:"max_hosts,omitempty"`
	// QueueLimit is how many requests to each host can wait for the end of its pause.
	// All others are rejected. With 0, the default, no request waits. A request that
	// waits keeps its place when the pause is renewed.
	QueueLimit int `json:"queue_limit,omitempty" yaml:"queue_limit,omitempty"`
}

// Validate returns a [weir.OptionsError] with everything that is wrong with o, or nil. A nil o is valid.
func (o *GateOptions) Validate() error {
	var problems validate.Problems
	if o != nil {
		if o.MaxHosts < 0 {
			problems.Add("MaxHosts", o.MaxHosts, "must be at least 1, or 0 for %d", DefaultMaxHosts)
		}
		problems.AtLeast("QueueLimit", o.QueueLimit, 0)
	}
	return problems.Err("weirhttp")
}

// A Gate has a limiter for each host, and can pause hosts. If a server answers one request with 429 or 503 and
// Retry-After, other requests would get the same answer. So a [Transport] with the gate as its PauseOnRetryAfter pauses
// the host. During the pause requests are rejected, with the remaining time as RetryAfter, or they wait if the options
// allow it.
//
//	gate, err := weirhttp.NewGate(perHost, nil)
//	p, err := pipeline.New("api",
//		retry.New(&retry.Options{Handle: weirhttp.Retryable}),
//		ratelimit.NewPartitioned(gate, weirhttp.HostFrom, nil),
//	)
//	transport, err := weirhttp.NewTransport(p, &weirhttp.TransportOptions{PauseOnRetryAfter: gate})
//
// When the pause ends, all waiting requests go on at once, at the rate of the limiter behind the gate. Make a Gate with
// [NewGate]. It implements [limiter.Partitioned], and is safe for concurrent use.
type Gate struct {
	behind  limiter.Partitioned[string] // nil: everything is granted
	options GateOptions

	latest atomic.Int64 // the clock.Now at which the last pause ends, or neverPaused
	mu     sync.Mutex
	hosts  map[string]*pause
}

// neverPaused is before every moment. It is not 0, because clock.Now can be negative in a test.
const neverPaused = math.MinInt64

// A pause is the pause of one host. It stays in [Gate].hosts until it has ended and no request waits for it, so that
// waiting requests keep their places when the host is paused again.
type pause struct {
	until   time.Duration // the clock.Now at which the pause ends
	waiting int
}

// NewGate returns a gate in front of l. If l is nil, the gate grants everything while the host is not paused. If o is
// nil, the defaults apply. The error is a [weir.OptionsError]. The gate needs no Close, and does not close l.
func NewGate(l limiter.Partitioned[string], o *GateOptions) (*Gate, error) {
	var problems validate.Problems
	admission.IsSet(&problems, "l", l)
	problems.Include("", o.Validate())
	if err := problems.Err("weirhttp"); err != nil {
		return nil, err
	}
	g := &Gate{behind: l, hosts: make(map[string]*pause)}
	g.latest.Store(neverPaused)
	if o != nil {
		g.options = *o
	}
	g.options.MaxHosts = cmp.Or(g.options.MaxHosts, DefaultMaxHosts)
	return g, nil
}

// Pause holds back requests to the host for d from now. It never shortens a pause. It does not bound d: a [Transport]
// cuts what a server asks for to its [TransportOptions.MaxRetryAfter] before it calls Pause.
func (g *Gate) Pause(host string, d time.Duration) {
	if d <= 0 {
		return
	}
	now := clock.Now()
	until := saturate.Add(now, d)
	g.mu.Lock()
	defer g.mu.Unlock()
	p := g.hosts[host]
	if p == nil {
		if !g.makeRoomLocked(now, until) {
			return
		}
		p = &pause{until: until}
		g.hosts[host] = p
	}
	p.until = max(p.until, until)
	g.latest.Store(max(g.latest.Load(), int64(until)))
}

// makeRoomLocked makes room in hosts for a new pause that ends at until. It returns false if the gate is full and the
// new pause would end before every pause that can be forgotten.
func (g *Gate) makeRoomLocked(now, until time.Duration) bool {
	if len(g.hosts) < g.options.MaxHosts {
		return true
	}
	first, firstUntil := "", forever
	for host, p := range g.hosts {
		switch {
		case p.waiting > 0:
		case p.until <= now:
			delete(g.hosts, host)
		case p.until < firstUntil:
			first, firstUntil = host, p.until
		}
	}
	if len(g.hosts) < g.options.MaxHosts {
		return true
	}
	if first == "" || until <= firstUntil {
		return false
	}
	delete(g.hosts, first)
	return true
}

// Paused returns how long the host is still paused. ok is false if it is not paused.
func (g *Gate) Paused(host string) (left time.Duration, ok bool) {
	latest := time.Duration(g.latest.Load())
	if latest == neverPaused {
		return 0, false // the usual case, in which the clock is not read
	}
	now := clock.Now()
	if now >= latest {
		return 0, false
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	p := g.hosts[host]
	if p == nil {
		return 0, false
	}
	left = p.until - now
	g.forgetLocked(host, p, now)
	return max(left, 0), left > 0
}

// forgetLocked forgets p if it has ended and no request waits for it.
func (g *Gate) forgetLocked(host string, p *pause, now time.Duration) {
	if p.until <= now && p.waiting == 0 {
		delete(g.hosts, host)
	}
}

// TryAcquire takes n permits of the host's limiter if the host is not paused. It implements [limiter.Partitioned].
func (g *Gate) TryAcquire(ctx context.Context, host string, n int) (limiter.Lease, error) {
	if left, ok := g.Paused(host); ok {
		return checked(ctx, n, custom.Rejected(left, ReasonPaused))
	}
	if g.behind == nil {
		return checked(ctx, n, custom.Granted(n, nil))
	}
	return g.behind.TryAcquire(ctx, host, n)
}

// Acquire waits for the end of the host's pause, if the queue has room, and then takes n permits as the limiter behind
// the gate does. It does not wait for a pause that outlasts the deadline of ctx. It implements [limiter.Partitioned].
func (g *Gate) Acquire(ctx context.Context, host string, n int) (limiter.Lease, error) {
	if left, ok := g.Paused(host); ok {
		if ctx.Err() == nil && n >= 0 {
			var err error
			if left, err = g.wait(ctx, host); err != nil {
				return limiter.Lease{}, err
			}
		}
		if left > 0 {
			return checked(ctx, n, custom.Rejected(left, ReasonPaused))
		}
	}
	if g.behind == nil {
		return checked(ctx, n, custom.Granted(n, nil))
	}
	return g.behind.Acquire(ctx, host, n)
}

// wait waits for the end of the host's pause. left is above 0 if the caller must not wait: the queue is full, or the
// pause outlasts the deadline.
func (g *Gate) wait(ctx context.Context, host string) (left time.Duration, err error) {
	g.mu.Lock()
	p := g.hosts[host]
	if p == nil { // it has just ended
		g.mu.Unlock()
		return 0, nil
	}
	if p.waiting >= g.options.QueueLimit {
		defer g.mu.Unlock()
		return p.until - clock.Now(), nil
	}
	p.waiting++
	g.mu.Unlock()
	defer func() { // deferred in case ctx panics
		g.mu.Lock()
		defer g.mu.Unlock()
		p.waiting--
		g.forgetLocked(host, p, clock.Now())
	}()
	for {
		g.mu.Lock()
		left = p.until - clock.Now()
		g.mu.Unlock()
		if left <= 0 || !worthWaiting(ctx, left) {
			return left, nil
		}
		if err := sleep(ctx, left); err != nil {
			return 0, err
		}
	}
}

// worthWaiting reports whether ctx can last longer than left.
func worthWaiting(ctx context.Context, left time.Duration) bool {
	deadline, ok := ctx.Deadline()
	return !ok || left < time.Until(deadline)
}

// sleep waits for d, or returns the error of ctx if that ends earlier.
func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return pipeline.ContextError(ctx)
	}
}

// checked returns the lease if ctx and n are valid. Otherwise it returns the error that every limiter returns for them.
func checked(ctx context.Context, n int, lease limiter.Lease) (limiter.Lease, error) {
	if err := pipeline.ContextError(ctx); err != nil {
		return limiter.Lease{}, err
	}
	if n < 0 {
		return limiter.Lease{}, fmt.Errorf("%w: %d, must be at least 0", limiter.ErrPermitCount, n)
	}
	return lease, nil
}
