package limiter

import "sync/atomic"

// exhaustion rejects requests for one permit without the limiter's lock while no permit is free, so that a flood of them
// does not hold up releases. One permit is in range of every limiter.
//
// Bit 0 is set only while no permit is free and the limiter is open, bit 1 only while in addition no caller can queue.
// The bits above them count the rejections, so that each is decided and counted at one moment. The two lowest bits
// change only under the limiter's lock, and are cleared before a waiter is answered: a waiter that has been granted a
// permit, or rejected by Close, can ask again at once and must not be rejected because of an old bit.
type exhaustion struct {
	bits  atomic.Int64
	noted bool // guarded by the limiter's lock
}

const (
	noneFree     = 1 << 0
	noQueue      = 1 << 1
	oneRejection = 1 << 2
)

// reject counts and returns a rejection. ok is false if the caller has to take the lock.
func (f *exhaustion) reject(wait bool) (l Lease, ok bool) {
	need := int64(noneFree)
	if wait {
		need |= noQueue
	}
	for {
		bits := f.bits.Load()
		if bits&need != need {
			return Lease{}, false
		}
		if f.bits.CompareAndSwap(bits, bits+oneRejection) {
			break
		}
	}
	if wait {
		return rejected(0, noPermit), true
	}
	return Lease{}, true
}

// rejections returns how many rejections reject has counted.
func (f *exhaustion) rejections() int64 { return f.bits.Load() / oneRejection }

// note is called under the lock when a caller finds no free permit. Only the second call in a row sets the bits,
// because clearing them costs time: a limiter that rejects a single caller now and then should not pay for that on each
// release.
func (f *exhaustion) note(mayQueue bool) {
	switch {
	case !f.noted:
		f.noted = true
	case f.bits.Load()&noneFree != 0:
	case mayQueue:
		f.bits.Add(noneFree)
	default:
		f.bits.Add(noneFree | noQueue)
	}
}

// clear is called under the lock before a permit comes back, before a limit changes, and before the limiter closes.
func (f *exhaustion) clear() {
	f.noted = false
	if set := f.bits.Load() & (noneFree | noQueue); set != 0 {
		f.bits.Add(-set)
	}
}
