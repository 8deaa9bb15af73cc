// Package weirtest helps to test code that uses weir.
//
// A [Limiter] gives the answers that the test wants, and records what it is asked and what becomes of its leases. A
// [Recorder] is a listener of pipelines that records events and measurements. Neither needs a [testing.TB]: the test
// compares what they have recorded.
//
// # Time
//
// This package reads the clock only by package time. So a test about time runs inside [testing/synctest], where an hour
// takes microseconds and every duration is exact:
//
//	func TestOrdersWaitAsLongAsTheLimiterAsks(t *testing.T) {
//		synctest.Test(t, func(t *testing.T) {
//			busy := weirtest.NewLimiter(weirtest.Reject(time.Minute, "busy"), weirtest.Grant().After(time.Second))
//			var events weirtest.Recorder
//			orders := weir.Must(pipeline.Config{
//				Strategies: []pipeline.Strategy{retry.New(nil), ratelimit.New(busy, nil)},
//				Listener:   &events,
//			}.Build())
//
//			start := time.Now()
//			err := orders.Execute(t.Context(), func(context.Context) error { return nil })
//			if took := time.Since(start); err != nil || took != 61*time.Second {
//				t.Errorf("got %v after %v", err, took)
//			}
//			if n := events.Count(retry.EventRetry); n != 1 {
//				t.Errorf("%d retries", n)
//			}
//		})
//	}
//
// To see what goroutines of the code under test have done, call [synctest.Wait] before the methods of the Limiter or the
// Recorder that return what was recorded: these do not wait.
//
// A test about the limits themselves needs no script. The limiters of package limiter work inside testing/synctest.
package weirtest
