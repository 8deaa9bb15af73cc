package testserver

import (
	"net"
	"sync"
	"time"
)

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
