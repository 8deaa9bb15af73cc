package weirrls

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/stretchr/testify/assert"

	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/rate"
)

// A hook is a function of the program that misbehaves once.
type hook struct {
	at    string          // which method
	ctx   context.Context // of the request
	armed atomic.Bool
	do    func(ctx context.Context)
}

func (h *hook) hit(ctx context.Context, at string) {
	if at == h.at && h.armed.CompareAndSwap(true, false) {
		h.do(ctx)
	}
}

// hookedLimiter is a limiter, for one counter and for each key, whose methods are hooks.
type hookedLimiter struct {
	*pot
	h *hook
}

func (l hookedLimiter) TryAcquire(ctx context.Context, n int) (limiter.Lease, error) {
	l.h.hit(ctx, "TryAcquire")
	return l.pot.TryAcquire(ctx, n)
}

func (l hookedLimiter) Charge(ctx context.Context, n int) (limiter.Level, error) {
	l.h.hit(ctx, "Charge")
	return l.pot.Charge(ctx, n)
}

func (l hookedLimiter) Limits() rate.Limits {
	l.h.hit(l.h.ctx, "Limits")
	return rate.Limits{Kind: rate.FixedWindow, Permits: 9, Period: time.Hour}
}

type hookedPartitioned struct{ hookedLimiter }

func (l hookedPartitioned) TryAcquire(ctx context.Context, _ string, n int) (limiter.Lease, error) {
	return l.hookedLimiter.TryAcquire(ctx, n)
}

func (l hookedPartitioned) Acquire(ctx context.Context, _ string, n int) (limiter.Lease, error) {
	return l.hookedLimiter.Acquire(ctx, n)
}

func (l hookedPartitioned) Charge(ctx context.Context, _ string, n int) (limiter.Level, error) {
	return l.hookedLimiter.Charge(ctx, n)
}

type hookedListener struct{ h *hook }

func (l hookedListener) Hooks() pipeline.Hooks {
	return pipeline.Hooks{
		OnEvent: l.OnEvent,
		Enabled: l.Enabled,
		OnMeasurement: func(ctx context.Context, e pipeline.Event) func(context.Context, pipeline.Event) {
			l.OnMeasurement(ctx, e)
			return l.OnMeasurement
		},
	}
}

func (l hookedListener) Enabled(ctx context.Context) bool { l.h.hit(ctx, "Enabled"); return true }

func (l hookedListener) OnEvent(ctx context.Context, _ pipeline.Event) { l.h.hit(ctx, "OnEvent") }

func (l hookedListener) OnMeasurement(ctx context.Context, _ pipeline.Event) {
	l.h.hit(ctx, "OnMeasurement")
}

// TestHooks: what a function of the program does, a panic, Goexit, a wait or a call back, loses no permit, leaves no
// goroutine, and the service goes on. It has the cases of tools/hooktest, which is in another module.
func TestHooks(t *testing.T) {
	modes := map[string]func(s *Service, r *ratelimitv3.RateLimitRequest) func(context.Context){
		"panics": func(*Service, *ratelimitv3.RateLimitRequest) func(context.Context) {
			return func(context.Context) { panic("hook") }
		},
		"leaves": func(*Service, *ratelimitv3.RateLimitRequest) func(context.Context) {
			return func(context.Context) { runtime.Goexit() }
		},
		"waits for the end": func(*Service, *ratelimitv3.RateLimitRequest) func(context.Context) {
			return func(ctx context.Context) { <-ctx.Done() }
		},
		"calls back": func(s *Service, r *ratelimitv3.RateLimitRequest) func(context.Context) {
			return func(ctx context.Context) {
				s.SetRules(s.rules.Load())
				_, _ = s.ShouldRateLimit(context.WithoutCancel(ctx), r)
			}
		},
	}
	for _, at := range []string{"TryAcquire", "Charge", "Enabled", "OnEvent", "OnMeasurement", "Limits"} {
		for mode, do := range modes {
			for _, alone := range []bool{true, false} { // asked on the caller's goroutine, or beside others
				t.Run(fmt.Sprint(at, " ", mode, " alone ", alone), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) { driveHook(t, at, alone, do) })
				})
			}
		}
	}
}

// driveHook sends a request that is over a limit while the hook misbehaves, and then one that is not.
func driveHook(t *testing.T, at string, alone bool, do func(*Service, *ratelimitv3.RateLimitRequest) func(context.Context)) {
	h := &hook{at: at}
	bucket := newBucket(t, 9)
	one, each, none := newPot(9), newPot(9), newPot(0)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	h.ctx = ctx
	s := newService(t, &ServiceOptions{Listener: hookedListener{h}},
		Descriptor{Key: "bucket", Limit: &Limit{Limiter: bucket}},
		Descriptor{Key: "one", Limit: &Limit{Limiter: hookedLimiter{one, h}}},
		Descriptor{Key: "each", Limit: &Limit{Partitioned: hookedPartitioned{hookedLimiter{each, h}}}},
		Descriptor{Key: "none", Limit: &Limit{Limiter: none, OnOverrun: OverrunRest}},
		Descriptor{Key: "window", Limit: windowOf(9, Year)},
	)
	r := request(describe("bucket", ""), describe("none", ""), describe("one", ""))
	if !alone {
		r.Descriptors = append(r.Descriptors, describe("each", ""), describe("window", ""))
	}
	h.do = do(s, r)
	h.armed.Store(true)
	done := make(chan struct{})
	go func() {
		defer close(done)
		response, err := s.ShouldRateLimit(ctx, r)
		assert.True(t, err != nil || response.OverallCode == isOver)
	}()
	<-done
	assert.False(t, h.armed.Load(), "the hook was called")
	if ctx.Err() == nil { // else what was taken stays taken
		assert.Equal(t, []int64{9, 9, 9}, []int64{bucket.Statistics().AvailablePermits, one.remaining(), each.remaining()})
	}
	none.limit, none.left = 9, 9
	assert.Equal(t, slices.Repeat(codeList{isOK}, 1+len(r.Descriptors)), codesOf(ask(t, s, r.Descriptors...)))
}
