package limiter

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A plainWindow is a sliding window as simple as can be: what was taken, by the number of the segment.
type plainWindow struct {
	began    time.Time
	period   time.Duration
	segments int64
	limit    int64
	taken    map[int64]int64
}

func (w *plainWindow) current() int64 { return int64(time.Since(w.began) / w.period) }

// used is what counts in the window of which segment is the current one.
func (w *plainWindow) used(segment int64) (sum int64) {
	for s, n := range w.taken {
		if s > segment-w.segments {
			sum += n
		}
	}
	return sum
}

func (w *plainWindow) forget() {
	for s, n := range w.taken {
		if s <= w.current()-w.segments || n == 0 {
			delete(w.taken, s)
		}
	}
}

// free is the first segment from the current one on in which n permits are free if nobody takes any.
func (w *plainWindow) free(n int64) int64 {
	first := w.current()
	if w.used(first)+n <= w.limit {
		return first
	}
	for s := range w.taken {
		if leaves := s + w.segments; w.used(leaves)+n <= w.limit && (first == w.current() || leaves < first) {
			first = leaves
		}
	}
	return first
}

// A window of many segments does what a plain one does, whatever is taken, given back and waited for.
func TestSlidingWindow_ManySegments(t *testing.T) {
	for _, segments := range []int{1, 2, 7, 255, 256, 257, 600, 5000} {
		for seed := range uint64(4) {
			t.Run(fmt.Sprintf("%d/%d", segments, seed), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { windowAgainstPlain(t, segments, rand.New(rand.NewPCG(seed, 7))) })
			})
		}
	}
}

func windowAgainstPlain(t *testing.T, segments int, r *rand.Rand) {
	const period = 10 * time.Millisecond
	plain := &plainWindow{began: time.Now(), period: period, segments: int64(segments), limit: 2000, taken: map[int64]int64{}}
	o := SlidingWindowOptions{PermitLimit: 2000, Window: period * time.Duration(segments), SegmentsPerWindow: segments}
	w := Must(NewSlidingWindow(o))
	type taken struct {
		lease   Lease
		segment int64
	}
	var leases []taken
	crowded := r.IntN(2) == 0
	for range 6000 {
		switch k := r.IntN(100); {
		case k < 55:
			n := 1 + r.IntN(4)
			if crowded {
				n = 1 + r.IntN(200)
			}
			l, err := w.TryAcquire(t.Context(), n)
			require.NoError(t, err)
			s := plain.current()
			at := plain.free(int64(n))
			require.Equal(t, at == s, l.Acquired(), "%d of %d used", plain.used(s), plain.limit)
			if l.Acquired() {
				plain.taken[s] += int64(n)
				leases = append(leases, taken{l, s})
				break
			}
			after, ok := l.RetryAfter()
			require.True(t, ok)
			require.Equal(t, time.Until(plain.began.Add(time.Duration(at)*period)), after)
		case k < 65 && len(leases) > 0:
			i := r.IntN(len(leases))
			if r.IntN(2) == 0 {
				i = len(leases) - 1
			}
			l := leases[i]
			leases = append(leases[:i], leases[i+1:]...)
			l.lease.undo()
			if l.segment > plain.current()-plain.segments {
				plain.taken[l.segment] -= int64(l.lease.Permits())
			}
		case k < 68:
			plain.limit = 200 + int64(r.IntN(6000))
			o.PermitLimit = int(plain.limit)
			require.NoError(t, w.Reconfigure(o))
		case k < 90:
			time.Sleep(time.Duration(r.Int64N(int64(2 * period))))
		case k < 99:
			time.Sleep(time.Duration(r.Int64N(int64(period) * plain.segments / 50 * 2)))
		default:
			time.Sleep(time.Duration(r.Int64N(int64(period) * plain.segments * 5 / 4)))
		}
		plain.forget()
		require.Equal(t, max(plain.limit-plain.used(plain.current()), 0), w.Statistics().AvailablePermits)
		_, idle := w.IdleDuration()
		require.Equal(t, plain.used(plain.current()) == 0, idle)
	}
	time.Sleep(o.Window)
	_, idle := w.IdleDuration()
	assert.True(t, idle)
	assert.Zero(t, w.past, "an unused window keeps nothing")
}
