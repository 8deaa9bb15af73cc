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

// A link is one connection through a Proxy.
type link struct {
	proxy  *Proxy
	client *net.TCPConn
	closed chan struct{}

	// Guarded by proxy.mu.
	server *net.TCPConn // nil until it is connected
	over   bool         // closed is closed
	lost   bool         // something was swallowed; nothing that follows is passed on
}

// A chunk is what was read at once, and when it is due at the other side. One without data is the end.
type chunk struct {
	data []byte
	due  time.Time
}

// reset ends both sides at once, as a network does that has had enough. It is called with proxy.mu held, or
// before the proxy knows of the link.
func (l *link) reset() {
	for _, conn := range []*net.TCPConn{l.client, l.server} {
		if conn != nil && !l.over {
			_ = conn.SetLinger(0)
		}
	}
	l.close()
}

// close ends both sides, with what was passed on still arriving. It is called like reset.
func (l *link) close() {
	if l.over {
		return
	}
	l.over = true
	close(l.closed)
	_ = l.client.Close()
	if l.server != nil {
		_ = l.server.Close()
	}
}

func (l *link) run() {
	defer l.proxy.remove(l)
	if !l.connect() {
		return
	}
	var both sync.WaitGroup
	both.Go(func() { l.pass(l.client, l.server) })
	both.Go(func() { l.pass(l.server, l.client) })
	both.Wait()
}

// connect reaches for the server. Where there is none the client learns it from the connection that closes;
// in a blackhole it learns nothing.
func (l *link) connect() bool {
	var dialer net.Dialer
	conn, err := dialer.DialContext(l.proxy.ctx, "tcp", l.proxy.target)
	if err != nil {
		if lost, _ := l.proxy.swallow(l); lost {
			l.drain()
		}
		return false
	}
	l.proxy.mu.Lock()
	defer l.proxy.mu.Unlock()
	l.server = conn.(*net.TCPConn)
	if l.over { // cut meanwhile
		_ = conn.Close()
	}
	return !l.over
}

// drain reads until the client or the proxy has enough.
func (l *link) drain() {
	buffer := make([]byte, 32<<10)
	for {
		if _, err := l.client.Read(buffer); err != nil {
			return
		}
	}
}

// pass passes one direction on. Reading and writing are apart, so that what is delayed does not hold up what
// comes after it.
func (l *link) pass(from, to *net.TCPConn) {
	queue := make(chan chunk, 1024)
	var writing sync.WaitGroup
	writing.Go(func() { l.write(to, queue) })
	l.read(from, queue)
	close(queue)
	writing.Wait()
}

func (l *link) read(from *net.TCPConn, queue chan<- chunk) {
	for {
		buffer := make([]byte, 32<<10)
		n, err := from.Read(buffer)
		lost, due := l.proxy.swallow(l)
		if !lost && n > 0 && !l.send(queue, chunk{buffer[:n], due}) {
			return
		}
		if err == nil {
			continue
		}
		if !lost {
			l.send(queue, chunk{nil, due})
		} else {
			<-l.closed // the other side must not notice
		}
		return
	}
}

func (l *link) send(queue chan<- chunk, c chunk) bool {
	select {
	case queue <- c:
		return true
	case <-l.closed:
		return false
	}
}

func (l *link) write(to *net.TCPConn, queue <-chan chunk) {
	for c := range queue {
		if !l.wait(c.due) {
			continue // the reader must get rid of what it has
		}
		if lost, _ := l.proxy.swallow(l); lost {
			continue
		}
		if c.data == nil {
			_ = to.CloseWrite()
		} else if _, err := to.Write(c.data); err != nil {
			l.proxy.remove(l)
		}
	}
}

// wait waits until due, and reports whether the link still exists then.
func (l *link) wait(due time.Time) bool {
	timer := time.NewTimer(time.Until(due)) // at once without a delay
	defer timer.Stop()
	select {
	case <-l.closed:
		return false
	case <-timer.C:
		return true
	}
}
