package handlerio

import (
	"os"
	"sync"
	"time"

	"github.com/weir-go/weir/internal/recovered"
)

// A cutoff makes calls that wait for a client fail when the time of a request is over. The end of a context does not wake them.
//
// It does not set a deadline of the connection in advance. The server (ReadTimeout, WriteTimeout) and the program set
// such deadlines, too, and a deadline cannot be read, so a cutoff could not restore theirs. Only if a call is under way
// when the time is over does the cutoff set the deadline, to a moment in the past. A later call fails without touching
// the connection. While no call is under way the connection belongs to net/http: over HTTP/1 it already reads the next
// request or watches for the client to hang up, and a deadline would end that.
type cutoff struct {
	expire func() // sets the deadline to one that has passed

	mu      sync.Mutex
	timer   *time.Timer
	at      time.Time
	calls   int           // between enter and leave
	expired bool          // expire was called
	closed  bool          // the time of the request no longer matters
	running chan struct{} // closed when the timer's latest call of expire has returned; nil: the timer has not called it
}

// WriteGrace is how long after the end of its time a handler can still write a response, for example one that says that
// it ran out of time. If the response begins after that moment, the grace counts from its beginning.
const WriteGrace = time.Second

// pastDeadline is a deadline that has passed.
var pastDeadline = time.Unix(1, 0)

// newCutoff returns a cutoff that calls expire at that time if a call is under way.
func newCutoff(at time.Time, expire func()) *cutoff {
	c := &cutoff{at: at, expire: expire}
	c.mu.Lock() // the timer can fire at once, before c.timer is set
	defer c.mu.Unlock()
	c.timer = time.AfterFunc(time.Until(at), c.fire)
	return c
}

// enter begins a call that can wait for the client; leave ends the call. If the time is over, enter returns an error. If
// c is nil, the time is not limited.
func (c *cutoff) enter() error {
	if c == nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.closed && time.Until(c.at) <= 0 {
		return os.ErrDeadlineExceeded
	}
	c.calls++
	return nil
}

// enterLate is enter for a call that must be made even if the time is over. If it is over, the call can take an eighth
// of WriteGrace, so that there is time to write an answer after the call.
func (c *cutoff) enterLate() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls++
	if !c.closed && time.Until(c.at) <= 0 {
		c.timer.Reset(WriteGrace / 8)
	}
}

// leave ends a call. If last is true, no other call follows, and the time no longer matters: then disturbed reports whether
// expire was called.
func (c *cutoff) leave(last bool) (disturbed bool) {
	if c == nil {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls--
	if last && !c.closed {
		c.closed = true
		c.timer.Stop()
	}
	return last && c.expired
}

// fire runs when the timer fires.
func (c *cutoff) fire() {
	c.mu.Lock()
	if c.closed || c.calls == 0 {
		c.mu.Unlock()
		return
	}
	earlier, running := c.running, make(chan struct{})
	c.running, c.expired = running, true
	c.mu.Unlock()
	defer close(running) // deferred in case a ResponseWriter of the program ends the goroutine
	if earlier != nil {
		<-earlier // enterLate has reset the timer while expire was running; close waits for both
	}
	recovered.Call("weirhttp: ResponseWriter's deadline", c.expire)
}

// expireOnce calls expire now if it was not called before.
func (c *cutoff) expireOnce() {
	c.mu.Lock()
	first := !c.expired && !c.closed
	c.expired = c.expired || first
	c.mu.Unlock()
	if first {
		c.expire()
	}
}

// hasExpired reports whether expire was called, so that a new deadline on the connection would undo it.
func (c *cutoff) hasExpired() bool {
	if c == nil {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.expired && !c.closed
}

// close waits for an expire that is running: when close has returned, the connection can be at its next request.
func (c *cutoff) close() {
	if c == nil {
		return
	}
	c.mu.Lock()
	c.closed = true
	c.timer.Stop()
	running := c.running
	c.mu.Unlock()
	if running != nil {
		<-running
	}
}
