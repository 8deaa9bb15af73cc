package weirhttp

import (
	"context"
	"fmt"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir/internal/clock"
	"github.com/weir-go/weir/internal/saturate"
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/pipeline"
)

// ReasonPaused is the reason of a rejection by a [Gate]; see [limiter.Lease.Reason].
const ReasonPaused = "paused as the server asked"

// DefaultMaxHosts is how many hosts a [Gate] remembers where
// [GateOptions.MaxHosts] is 0.
const DefaultMaxHosts = 1024

// GateOptions are the options of a [Gate]. With the zero GateOptions no request waits.
type GateOptions struct {
	// MaxHosts bounds how many hosts can be paused at once; 0 is 1024. With more,
	// the pause that would end first is forgotten, unless requests wait for it.
	MaxHosts int `json:"max_hosts,omitempty" yaml:"max_hosts,omitempty"`
	// QueueLimit is how many requests may wait for the end of a host's pause, for
	// each host. The others are rejected; with 0 all are. A request that waits keeps
	// its place when the pause is renewed.
	QueueLimit int `json:"queue_limit,omitempty" yaml:"queue_limit,omitempty"`
}

// Validate returns every problem in one error, or nil.
func (o *GateOptions) Validate() error {
	if o == nil {
		return nil
	}
	var problems []string
	if o.MaxHosts < 0 {
		problems = append(problems, fmt.Sprintf("MaxHosts is %d, must be at least 1, or 0 for %d", o.MaxHosts, DefaultMaxHosts))
	}
	if o.QueueLimit < 0 {
		problems = append(problems, fmt.Sprintf("QueueLimit is %d, must be at least 0", o.QueueLimit))
	}
	if len(problems) == 0 {
		return nil
	}
	return fmt.Errorf("%w: GateOptions: %s", limiter.ErrInvalidOptions, strings.Join(problems, "; "))
}

// A Gate is a limiter for each host that can be paused. A server that answers 429 or
// 503 with Retry-After asks its clients to wait, and not just the one request: so a
// [RoundTripper] with the gate as its PauseOnRetryAfter pauses the host, and other
// requests do not get the same answer. During the pause requests are rejected, with the
// time left as RetryAfter, or wait where the options allow that.
//
//	gate, err := weirhttp.NewGate(perHost, nil)
//	p, err := pipeline.New("api",
//		retry.New(&retry.Options{Handle: weirhttp.Retryable}),
//		ratelimit.NewPartitioned(gate, weirhttp.HostFrom, nil),
//	)
//	transport := weirhttp.Transport(p, &weirhttp.TransportOptions{PauseOnRetryAfter: gate})
//
// When the pause ends, all waiting requests go on at once: the limiter behind the gate
// decides how fast. Make one with [NewGate]. It is a [limiter.Partitioned].
type Gate struct {
	behind  limiter.Partitioned[string] // nil: everything is granted
	options GateOptions

	latest atomic.Int64 // when the last pause ends, on sinceStart's clock, or notYet
	mu     sync.Mutex
	hosts  map[string]*pause
}

// notYet is before every moment; the clock can be negative in a test.
const notYet = math.MinInt64

// A pause is that of one host. It stays in [Gate].hosts until it has ended and no request
// waits for it: so those that wait keep their places, and see it, when it is renewed.
type pause struct {
	until   time.Duration // on sinceStart's clock
	waiting int
}

// NewGate makes a gate in front of l. With a nil l it grants everything that is not
// paused. A nil o means the defaults. The error is a [limiter.ErrInvalidOptions]. The
// gate needs no closing, and does not close l.
func NewGate(l limiter.Partitioned[string], o *GateOptions) (*Gate, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	g := &Gate{behind: l, hosts: make(map[string]*pause)}
	g.latest.Store(notYet)
	if o != nil {
		g.options = *o
	}
	if g.options.MaxHosts == 0 {
		g.options.MaxHosts = DefaultMaxHosts
	}
	return g, nil
}

// Pause holds back requests to the host for d from now. It never shortens a pause. d is
// not bounded here: a [RoundTripper] cuts what a server asks for to its
// [TransportOptions.MaxRetryAfter] before it calls Pause.
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

// makeRoomLocked makes room for a pause until then. It returns false if that would
// end before all others that can be forgotten.
func (g *Gate) makeRoomLocked(now, until time.Duration) bool {
	if len(g.hosts) < g.options.MaxHosts {
		return true
	}
	first, firstUntil := "", longest
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

// Paused returns how long the host is still paused.
func (g *Gate) Paused(host string) (left time.Duration, ok bool) {
	latest := time.Duration(g.latest.Load())
	if latest == notYet {
		return 0, false // the usual case does not even read the clock
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

// TryAcquire takes n permits of the host's limiter if it is not paused. It
// implements [limiter.Partitioned].
func (g *Gate) TryAcquire(ctx context.Context, host string, n int) (limiter.Lease, error) {
	if left, ok := g.Paused(host); ok {
		return rejectPaused(ctx, left, n)
	}
	if g.behind == nil {
		return granted(ctx, n)
	}
	return g.behind.TryAcquire(ctx, host, n)
}

// Acquire is TryAcquire, but waits for the end of a pause where there is room for
// that, and then as the limiter behind does. A pause that would outlast the deadline
// of ctx is not waited for. It implements [limiter.Partitioned].
func (g *Gate) Acquire(ctx context.Context, host string, n int) (limiter.Lease, error) {
	if left, ok := g.Paused(host); ok {
		if ctx.Err() != nil || n < 0 {
			return rejectPaused(ctx, left, n)
		}
		if left, err := g.wait(ctx, host); err != nil {
			return limiter.Lease{}, err
		} else if left > 0 {
			return rejectPaused(ctx, left, n)
		}
	}
	if g.behind == nil {
		return granted(ctx, n)
	}
	return g.behind.Acquire(ctx, host, n)
}

// wait waits for the end of the host's pause. It returns how long that lasts yet if the
// caller is not to wait for it: there is no place, or it outlasts the deadline.
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
	defer func() { // also if ctx panics
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

func worthWaiting(ctx context.Context, left time.Duration) bool {
	deadline, ok := ctx.Deadline()
	return !ok || left < time.Until(deadline)
}

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

// rejectPaused is the answer during a pause: errors come first, as in every limiter.
func rejectPaused(ctx context.Context, left time.Duration, n int) (limiter.Lease, error) {
	if err := mayAsk(ctx, n); err != nil {
		return limiter.Lease{}, err
	}
	return limiter.Rejected(left, ReasonPaused), nil
}

func granted(ctx context.Context, n int) (limiter.Lease, error) {
	if err := mayAsk(ctx, n); err != nil {
		return limiter.Lease{}, err
	}
	return limiter.Granted(n, nil), nil
}

func mayAsk(ctx context.Context, n int) error {
	if err := pipeline.ContextError(ctx); err != nil {
		return err
	}
	if n < 0 {
		return fmt.Errorf("%w: %d, must be at least 0", limiter.ErrPermitCount, n)
	}
	return nil
}
