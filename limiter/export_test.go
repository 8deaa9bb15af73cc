package limiter

// HoldTimer stops the timer of l's queue until FireTimer, as if it were late.
func HoldTimer(l Limiter) {
	if e, ok := engineOf(l); ok {
		e.lock()
		defer e.unlock()
		if c := e.own(); c.timer != nil {
			c.timer.Stop()
		}
	}
}

// FireTimer does what the timer of l's queue would do.
func FireTimer(l Limiter) {
	if e, ok := engineOf(l); ok {
		e.lock()
		e.own().armed = never // so that the timer is set again
		e.unlock()
		tick(e)
	}
}

// engineOf returns l's engine. Only call it where l's queue is in use: a bucket gets a state of its own.
func engineOf(l Limiter) (engine, bool) {
	switch l := l.(type) {
	case *TokenBucket:
		return &l.bucket, true
	case *FixedWindow:
		return &l.bucket, true
	case *SlidingWindow:
		return l, true
	case *Calendar:
		return l, true
	}
	return nil, false
}
