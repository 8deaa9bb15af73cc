package store

import (
	"errors"
	"math/rand/v2"
	"time"

	"github.com/weir-go/weir/store/backend"
)

// listen starts the goroutine that listens to notices, unless it was started before or Options.NoListen is set.
func (s *Store) listen() {
	if !s.o.NoListen {
		s.listenOnce.Do(func() { s.background.Go(s.listenLoop) })
	}
}

// listenLoop listens until the Store is closed, and reconnects when the connection is lost.
func (s *Store) listenLoop() {
	defer s.listening.Store(false)
	failed := false // Listen has failed since ready was last called
	for pause := time.Duration(0); s.background.Sleep(pause); pause = s.o.ProbeInterval/2 + rand.N(s.o.ProbeInterval) {
		err := s.calls.Listen(func() {
			s.listening.Store(true)
			wake := failed // before the first connection there was no notice to miss: waiting callers polled
			s.background.Go(func() { s.catchUp(wake) })
			failed = false
		}, s.notice)
		if s.background.Err() != nil {
			return
		}
		if s.listening.Swap(false) {
			s.wakeQueues(nil) // from now on waiters poll
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
func (s *Store) notice(n backend.Notice) {
	for _, c := range s.named(n.Name) {
		if n.Released {
			c.wakeKeyByNotice(n.Key)
		} else {
			c.keeper.Refresh()
		}
	}
}

// catchUp makes up for notices that were missed.
func (s *Store) catchUp(wake bool) {
	for _, c := range s.named("") {
		<-c.keeper.Refresh()
	}
	if wake {
		s.wakeQueues(nil)
	}
}

// wakeSpread is the time over which wakeQueues spreads the queues that it wakes.
const wakeSpread = 50 * time.Millisecond

// wakeQueues wakes the queues of one shard's keys, or all queues if shard is nil. It spreads them over wakeSpread so that
// they do not overload a store that has just come back.
func (s *Store) wakeQueues(shard *string) {
	for _, c := range s.named("") {
		c.keys.each(func(ks *keyState) {
			if !ks.queue.Empty() && (shard == nil || s.calls.ShardOf(c.name, ks.key) == *shard) {
				time.AfterFunc(time.Duration(rand.Int64N(int64(wakeSpread))), ks.queue.wake)
			}
		})
	}
}
