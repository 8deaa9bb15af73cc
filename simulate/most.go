package simulate

import "time"

// A mostOf finds the most permits in any window of one length: of all requests, and of one key.
type mostOf struct {
	all  window
	keys map[string]*window
	best *window // of keys
	key  string  // of best
}

// A window has the permits of the last window of one length. It has its beginning and not its end.
type window struct {
	length time.Duration
	stamps []stamp
	sum    int64
	most   int64
	at     time.Duration
}

// A stamp is when permits were taken.
type stamp struct {
	at      time.Duration
	permits int64
}

func newMost(length time.Duration) *mostOf {
	return &mostOf{all: window{length: length}, keys: map[string]*window{}}
}

// mostPermits is how many permits of a call count: the sum of as many calls as fit into memory does not overflow.
const mostPermits = 1 << 30

// add adds permits. Without kept, only all requests have them.
func (m *mostOf) add(at time.Duration, key string, permits int64, kept bool) {
	permits = min(permits, mostPermits)
	m.all.add(at, permits)
	if !kept {
		return
	}
	w := m.keys[key]
	if w == nil {
		w = &window{length: m.all.length}
		m.keys[key] = w
	}
	w.add(at, permits)
	if m.best == nil || w.most > m.best.most {
		m.best, m.key = w, key
	}
}

// add adds permits at a time that is not before the last one.
func (w *window) add(at time.Duration, permits int64) {
	old := 0
	for old < len(w.stamps) && at-w.stamps[old].at >= w.length {
		w.sum -= w.stamps[old].permits
		old++
	}
	if w.stamps = w.stamps[old:]; len(w.stamps) == 0 {
		w.stamps = nil
	}
	if n := len(w.stamps); n > 0 && w.stamps[n-1].at == at {
		w.stamps[n-1].permits += permits
	} else {
		w.stamps = append(w.stamps, stamp{at, permits})
	}
	if w.sum += permits; w.sum > w.most {
		w.most, w.at = w.sum, w.stamps[0].at
	}
}

// most returns what was found.
func (m *mostOf) most() Most {
	found := Most{Window: m.all.length, Permits: m.all.most, At: m.all.at}
	if m.best != nil {
		found.Key, found.KeyPermits, found.KeyAt = m.key, m.best.most, m.best.at
	}
	return found
}
