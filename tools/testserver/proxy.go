package testserver

import (
	"context"
	"net"
	"sync"
	"testing"
	"time"
)

// A Proxy passes TCP connections on to a server, and does to them what a bad network does. There is none
// without NewProxy. It does nothing bad until it is told to.
type Proxy struct {
	listener net.Listener
	target   string
	ctx      context.Context // ends with the proxy
	running  sync.WaitGroup

	mu        sync.Mutex
	delay     time.Duration
	refuse    bool
	blackhole bool
	links     map[*link]struct{}
}

// NewProxy starts a proxy on a free port of 127.0.0.1 in front of addr. It ends with the test.
func NewProxy(t testing.TB, addr string) *Proxy {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	p := &Proxy{listener: listener, target: addr, ctx: ctx, links: make(map[*link]struct{})}
	p.running.Go(p.accept)
	t.Cleanup(func() {
		cancel()
		_ = listener.Close()
		p.Cut()
		p.running.Wait()
	})
	return p
}

// Addr is what clients connect to.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Delay holds everything back for d in each direction, from now on. It takes no throughput: what is sent in
// between is on its way at the same time. A connection is made without delay.
func (p *Proxy) Delay(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.delay = d
}

// Cut closes all connections now, both sides of them, with what is on its way. New ones are accepted.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.links {
		l.reset()
	}
	clear(p.links)
}

// Refuse closes new connections at once, while it is on. Existing connections stay open.
func (p *Proxy) Refuse(on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refuse = on
}

// Blackhole accepts and reads, and passes nothing on, while it is on: neither what is sent nor that a side
// closed. When it ends, connections that lost something by it are closed, because what follows would make no
// sense without.
func (p *Proxy) Blackhole(on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.blackhole = on
	if on {
		return
	}
	for l := range p.links {
		if l.lost {
			l.reset()
			delete(p.links, l)
		}
	}
}

// Connections is how many there are.
func (p *Proxy) Connections() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.links)
}

func (p *Proxy) accept() {
	for {
		conn, err := p.listener.Accept()
		if err != nil {
			return // the test is over
		}
		l := &link{proxy: p, client: conn.(*net.TCPConn), closed: make(chan struct{})}
		if p.add(l) {
			p.running.Go(l.run)
		} else {
			l.reset()
		}
	}
}

// add adds a link, and reports whether new links are accepted.
func (p *Proxy) add(l *link) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.refuse || p.ctx.Err() != nil {
		return false
	}
	p.links[l] = struct{}{}
	return true
}

// remove closes what is left of a link.
func (p *Proxy) remove(l *link) {
	p.mu.Lock()
	defer p.mu.Unlock()
	l.close()
	delete(p.links, l)
}

// swallow reports whether the data that a link holds is lost, and otherwise when it is due at the other side.
func (p *Proxy) swallow(l *link) (lost bool, due time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	l.lost = l.lost || p.blackhole
	return l.lost, time.Now().Add(p.delay)
}
