package weirhttp

import (
	"os"
	"sync"
	"time"

	"github.com/weir-go/weir/internal/recovered"
)

// A cutoff ends calls that wait for a client when the time of a request is over: a
// context alone does not wake them up.
//
// It does not touch the deadlines of the connection before that. They are the
// server's (ReadTimeout, WriteTimeout) and the program's, they cannot be read, and so
// they could not be put back. Only if a call is under way when the time is over, the
// deadline is set to one that has passed. A later call fails without the connection.
// What is on the connection when no call is under way is net/http's: over HTTP/1 it
// reads there already, for the next request or to see the client go, and a deadline
// would end that.
type cutoff struct {
	expire func() // sets the deadline to one that has passed

	mu     sync.Mutex
	timer  *time.Timer
	at     time.Time
	inside int           // calls under way
	acted  bool          // expire was called
	closed bool          // the time of the request does not matter any more
	acting chan struct{} // closed when the last expire that has begun has returned; nil: none has begun
}

// aLongTimeAgo is a deadline that has passed.
var aLongTimeAgo = time.Unix(1, 0)

func newCutoff(at time.Time, expire func()) *cutoff {
	c := &cutoff{at: at, expire: expire}
	c.mu.Lock() // the timer may fire at once
	defer c.mu.Unlock()
	c.timer = time.AfterFunc(time.Until(at), c.fire)
	return c
}

// enter begins a call that may wait for the client; leave ends it. It fails when the
// time is over.
func (c *cutoff) enter() error {
	if c == nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.closed && time.Until(c.at) <= 0 {
		return os.ErrDeadlineExceeded
	}
	c.inside++
	return nil
}

// enterLate is enter for a call that is made also when the time is over, and then gets
// a grace.
func (c *cutoff) enterLate() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.inside++
	if !c.closed && time.Until(c.at) <= 0 {
		c.timer.Reset(writeGrace / 8) // less, so that an answer still goes out
	}
}

// leave ends a call. The last one is that after which the time does not matter any
// more. disturbed reports whether expire was called before the last one had ended.
func (c *cutoff) leave(last bool) (disturbed bool) {
	if c == nil {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.inside--
	if last && !c.closed {
		c.closed = true
		c.timer.Stop()
	}
	return last && c.acted
}

// fire is the timer's.
func (c *cutoff) fire() {
	c.mu.Lock()
	if c.closed || c.inside == 0 {
		c.mu.Unlock()
		return
	}
	earlier, acting := c.acting, make(chan struct{})
	c.acting, c.acted = acting, true
	c.mu.Unlock()
	defer close(acting) // also if the ResponseWriter is the program's, and ends the goroutine
	if earlier != nil {
		<-earlier // enterLate has set the timer while expire was under way; close waits for both
	}
	recovered.Call("weirhttp: ResponseWriter's deadline", c.expire)
}

// act calls expire now, if it was not called yet.
func (c *cutoff) act() {
	c.mu.Lock()
	act := !c.acted && !c.closed
	c.acted = c.acted || act
	c.mu.Unlock()
	if act {
		c.expire()
	}
}

// passed reports whether a deadline that others set would undo what expire did.
func (c *cutoff) passed() bool {
	if c == nil {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.acted && !c.closed
}

// close waits for an expire that is under way: after that the connection may be at its
// next request.
func (c *cutoff) close() {
	if c == nil {
		return
	}
	c.mu.Lock()
	c.closed = true
	c.timer.Stop()
	acting := c.acting
	c.mu.Unlock()
	if acting != nil {
		<-acting
	}
}
