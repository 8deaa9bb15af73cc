package bench

import (
	"testing"

	"github.com/failsafe-go/failsafe-go/bulkhead"
	"golang.org/x/sync/semaphore"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/limiter"
)

// roomy is a limit above the number of goroutines: no caller is rejected, and none waits.
const roomy = 64

func newConcurrency(permits, queue int) *limiter.Concurrency {
	return weir.Must(limiter.NewConcurrency(limiter.ConcurrencyOptions{PermitLimit: permits, QueueLimit: queue}))
}

// BenchmarkConcurrencyTry takes a permit without waiting and gives it back.
func BenchmarkConcurrencyTry(b *testing.B) {
	compareByGoroutines(b, []contender{
		{"weir-concurrency", func(*testing.B) func() bool {
			l := newConcurrency(roomy, 0)
			return func() bool {
				lease, err := l.TryAcquire(ctx, 1)
				lease.Release()
				return err == nil && lease.Acquired()
			}
		}},
		{"x-sync-semaphore", func(*testing.B) func() bool {
			s := semaphore.NewWeighted(roomy)
			return func() bool {
				ok := s.TryAcquire(1)
				if ok {
					s.Release(1)
				}
				return ok
			}
		}},
		{"failsafe-bulkhead", func(*testing.B) func() bool {
			l := bulkhead.New[any](roomy)
			return func() bool {
				ok := l.TryAcquirePermit()
				if ok {
					l.ReleasePermit()
				}
				return ok
			}
		}},
	})
}

// BenchmarkConcurrencyRejected measures rejections without waiting, by a limit whose only permit is in use.
func BenchmarkConcurrencyRejected(b *testing.B) {
	compareByGoroutines(b, []contender{
		{"weir-concurrency", func(b *testing.B) func() bool { return drained(b, newConcurrency(1, 0)) }},
		{"x-sync-semaphore", func(b *testing.B) func() bool {
			s := semaphore.NewWeighted(1)
			return drainedPeer(b, func() bool { return s.TryAcquire(1) })
		}},
		{"failsafe-bulkhead", func(b *testing.B) func() bool {
			return drainedPeer(b, bulkhead.New[any](1).TryAcquirePermit)
		}},
	})
}

// BenchmarkConcurrencyAcquire is BenchmarkConcurrencyTry with the call that waits for a permit if there is none.
func BenchmarkConcurrencyAcquire(b *testing.B) {
	compareByGoroutines(b, acquirers(roomy, 0))
}

// acquirers take a permit, waiting if there is none, and give it back.
func acquirers(permits, queue int) []contender {
	return []contender{
		{"weir-concurrency", func(*testing.B) func() bool {
			l := newConcurrency(permits, queue)
			return func() bool {
				lease, err := l.Acquire(ctx, 1)
				lease.Release()
				return err == nil && lease.Acquired()
			}
		}},
		{"x-sync-semaphore", func(*testing.B) func() bool {
			s := semaphore.NewWeighted(int64(permits))
			return func() bool {
				if s.Acquire(ctx, 1) != nil {
					return false
				}
				s.Release(1)
				return true
			}
		}},
		{"failsafe-bulkhead", func(*testing.B) func() bool {
			l := bulkhead.New[any](uint(permits))
			return func() bool {
				if l.AcquirePermit(ctx) != nil {
					return false
				}
				l.ReleasePermit()
				return true
			}
		}},
	}
}
