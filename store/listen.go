package store

import (
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir/store/backend"
)

// A listener tells the limiters of a Store what happens in the store: notices of releases and of new limits, and outages.
type listener struct {
	s         *Store
	once      sync.Once   // starts loop
	connected atomic.Bool // notices arrive
}

// start starts the goroutine that listens to notices, unless it was started before or Options.NoListen is set.
func (l *listener) start() {
	if !l.s.o.NoListen {
		l.once.Do(func() { l.s.background.Go(l.loop) })
	}
}

// loop listens until the Store is closed, and reconnects when the connection is lost.
func (l *listener) loop() {
	s := l.s
	defer l.connected.Store(false)
	failed := false // Listen has failed since ready was last called
	for pause := time.Duration(0); s.background.Sleep(pause); pause = s.o.ProbeInterval/2 + rand.N(s.o.ProbeInterval) {
		err := s.calls.Listen(func() {
			l.connected.Store(true)
			wake := failed // before the first connection there was no notice to miss: waiting callers polled
			s.background.Go(func() { l.catchUp(wake) })
			failed = false
		}, l.notice)
		if s.background.Err() != nil {
			return
		}
		if l.connected.Swap(false) {
			l.wakeQueues(nil) // from now on waiters poll
		}
		unsupported := errors.Is(err, errors.ErrUnsupported)
		if !failed || unsupported {
			s.report(Event{Kind: EventListenFailed, Err: err})
		}
		if failed = true; unsupported {
			return
		}
	}
}

// notice passes a notice to the limiters of that name.
func (l *listener) notice(n backend.Notice) {
	for _, c := range l.s.named(n.Name) {
		if n.Released {
			c.keys.released(n.Key)
		} else {
			c.keeper.Refresh()
		}
	}
}

// catchUp makes up for notices that were missed.
func (l *listener) catchUp(wake bool) {
	for _, c := range l.s.named("") {
		<-c.keeper.Refresh()
	}
	if wake {
		l.wakeQueues(nil)
	}
}

// wakeQueues wakes the queues of one shard's keys, or all queues if shard is nil.
func (l *listener) wakeQueues(shard *string) {
	for _, c := range l.s.named("") {
		c.keys.each(func(ks *keyState) {
			if shard == nil || l.s.calls.ShardOf(c.name, ks.key) == *shard {
				ks.wakeSoon()
			}
		})
	}
}

// lost is called when a shard begins to count as away. The outage policy answers waiting callers, too.
func (l *listener) lost(shard string, err error) {
	l.s.report(Event{Kind: EventStoreLost, Shard: shard, Err: err})
	l.wakeQueues(&shard)
}

// recovered is called when a shard is there again.
func (l *listener) recovered(shard string, away time.Duration) {
	l.s.report(Event{Kind: EventStoreRecovered, Shard: shard, Away: away})
	l.wakeQueues(&shard)
	l.s.background.Go(func() { l.catchUp(false) }) // the store may have lost definitions
}
