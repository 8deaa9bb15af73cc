package definition

import (
	"sync"
	"time"
)

// Loads run one at a time, and are shared by all callers who need one.
type loads struct {
	do func() error

	mu       sync.Mutex
	underWay *load     // nil: none
	ended    time.Time // when the last one has ended; zero: none has
	err      error     // of the last one
}

// The err of a load is valid once done is closed.
type load struct {
	done chan struct{}
	err  error
	next *load // begins when this one has ended; nil: none is wanted
}

// join returns the load that is under way, or a new one. With afresh, it is one that has not begun yet.
func (s *loads) join(afresh bool) *load {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := &s.underWay
	if afresh && s.underWay != nil {
		l = &s.underWay.next
	}
	if *l == nil {
		*l = &load{done: make(chan struct{})}
		if l == &s.underWay {
			go s.run(s.underWay)
		}
	}
	return *l
}

func (s *loads) run(l *load) {
	l.err = s.do()
	s.mu.Lock()
	s.ended, s.err = time.Now(), l.err
	if s.underWay = l.next; s.underWay != nil {
		go s.run(s.underWay)
	}
	s.mu.Unlock()
	close(l.done)
}

// last returns when the last load has ended, and its error.
func (s *loads) last() (ended time.Time, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ended, s.err
}
