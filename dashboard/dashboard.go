package dashboard

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// A Dashboard shows the pipelines of a registry. Make one with [New]. It is safe for concurrent use.
type Dashboard struct {
	options Options
	started time.Time
	streams atomic.Int64 // pages that are updated by a stream
	looked  atomic.Int64 // when a page was last asked for, in ns since started

	closed    chan struct{}
	closeOnce sync.Once
	done      chan struct{} // closed when the sampler has ended

	turn    chan struct{} // has an element while a sample is taken or a snapshot is made
	sampler *sampler      // used by the holder of turn

	mu     sync.Mutex
	latest *snapshot     // nil: the next page needs a new one
	next   chan struct{} // closed when there is a newer snapshot
	acted  int           // how many actions were done
}

// New makes a Dashboard and starts its sampler, a goroutine that reads the counts of limiters and the states of circuits every
// 2 s. Stores are asked, and everything else is read, only while a page is open. The error is a [weir.OptionsError]. Call
// [Dashboard.Close] when it is no longer needed.
func New(o Options) (*Dashboard, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	if o.Events == nil {
		o.Events = new(Events)
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	if o.KeyHash == nil {
		o.KeyHash = NewKeyHash()
	}
	o.MaxStreams = cmp.Or(o.MaxStreams, 64)
	if o.Instance == "" {
		host, _ := os.Hostname()
		o.Instance = fmt.Sprintf("%s, process %d", cmp.Or(host, "this host"), os.Getpid())
	}
	o.Stores = maps.Clone(o.Stores)
	d := &Dashboard{
		options: o,
		started: time.Now(),
		closed:  make(chan struct{}),
		done:    make(chan struct{}),
		turn:    make(chan struct{}, 1),
		next:    make(chan struct{}),
	}
	d.sampler = newSampler(&d.options)
	go d.run()
	return d, nil
}

// Close ends the streams of open pages and the sampler, and waits for the sampler. Pages can still be asked for; their rates
// are then those since earlier pages were asked for. Call it before http.Server.Shutdown, which would wait for the streams, or
// register it with http.Server.RegisterOnShutdown. A second call does nothing. The error is always nil.
func (d *Dashboard) Close() error {
	d.closeOnce.Do(func() { close(d.closed) })
	<-d.done
	return nil
}

// run samples until d is closed.
func (d *Dashboard) run() {
	defer close(d.done)
	t := time.NewTicker(tick)
	defer t.Stop()
	for {
		select {
		case <-d.closed:
			return
		case <-t.C:
		}
		d.turn <- struct{}{}
		if now := time.Now(); d.isWatched(now) {
			d.takeSnapshot(now)
		} else {
			d.sampler.sample(now)
		}
		<-d.turn
	}
}

// isWatched reports whether a page is open.
func (d *Dashboard) isWatched(now time.Time) bool {
	return d.streams.Load() > 0 || now.Sub(d.started)-time.Duration(d.looked.Load()) < watched && d.looked.Load() > 0
}

// takeSnapshot makes a snapshot, which is the latest from then on. The caller has turn.
func (d *Dashboard) takeSnapshot(now time.Time) *snapshot {
	d.mu.Lock()
	acted := d.acted
	d.mu.Unlock()
	s := d.sampler.snapshot(now)
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.acted == acted { // else it can be from before the action
		d.latest = s
		close(d.next)
		d.next = make(chan struct{})
	}
	return s
}

// outdate makes the next page wait for a new snapshot: after an action, a page must show what it has done.
func (d *Dashboard) outdate() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.latest = nil
	d.acted++
}

// newest returns the latest snapshot, which can be nil, and a channel that is closed when there is a newer one.
func (d *Dashboard) newest() (*snapshot, <-chan struct{}) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.latest, d.next
}

// snapshot returns a snapshot that is not older than maxAge, or the error of ctx. The caller must not change it.
func (d *Dashboard) snapshot(ctx context.Context, maxAge time.Duration) (*snapshot, error) {
	d.looked.Store(max(int64(time.Since(d.started)), 1))
	if s, _ := d.newest(); s != nil && time.Since(s.Time) <= maxAge {
		return s, nil
	}
	select {
	case d.turn <- struct{}{}:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	defer func() { <-d.turn }()
	if s, _ := d.newest(); s != nil && time.Since(s.Time) <= maxAge { // made while this call waited
		return s, nil
	}
	return d.takeSnapshot(time.Now()), nil
}
