package weirrls

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/storetest"
)

// TestNewRules_RefusesConcurrency: the permits of a concurrency limiter would not come back.
func TestNewRules_RefusesConcurrency(t *testing.T) {
	st := newStore(t, storetest.NewMemory(), nil)
	o := limiter.ConcurrencyOptions{PermitLimit: 1}
	perKey := weir.Must(PerKey(limiter.FactoryFor[string](o), nil))
	defer func() { _ = perKey.Close() }()
	broken := weir.Must(PerKey(func(string) (limiter.Limiter, error) { panic("factory") }, nil))
	defer func() { _ = broken.Close() }()
	for _, l := range []Limit{
		{Limiter: weir.Must(st.Concurrency("c", o, nil))}, {Partitioned: weir.Must(st.PartitionedConcurrency("p", o, nil))}, {Partitioned: perKey},
	} {
		_, err := NewRules(Domain{Name: "d", Descriptors: []Descriptor{{Key: "k", Limit: &l}}})
		assert.ErrorContains(t, err, "must not have a concurrency limiter")
	}
	_, err := NewRules(Domain{Name: "d", Descriptors: []Descriptor{{Key: "k", Limit: &Limit{Partitioned: broken}}}})
	require.NoError(t, err, "a factory that panics is no reason to panic")
}

// TestSlots_UnderLoad is the recipe of the documentation, slots with a time to live instead of a concurrency limiter: a client that always has as many requests in flight as it can has no more of them in the end than in
// the beginning. If the newest slot went back first, the oldest would end while the requests run, and there would be
// about a hundred after three hours.
func TestSlots_UnderLoad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newSlots(t, 10)
		var running []time.Time // when they end
		for start := time.Now(); time.Since(start) < 3*time.Hour; time.Sleep(time.Second) {
			for len(running) > 0 && !time.Now().Before(running[0]) {
				running = running[1:]
				c.end()
			}
			for c.begin() {
				running = append(running, time.Now().Add(10*time.Second))
			}
			c.end() // of the rejected one
			require.Len(t, running, 10)
		}
	})
}

// TestSlots_AllLost: slots that are never given back end at their time, however often the client tries meanwhile.
func TestSlots_AllLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newSlots(t, 5)
		for range 5 {
			assert.True(t, c.begin())
		}
		lost := time.Now()
		for !c.begin() {
			c.end()
			time.Sleep(10 * time.Second)
			require.Less(t, time.Since(lost), time.Hour)
		}
		assert.InDelta(t, 5*time.Minute, time.Since(lost), float64(30*time.Second))
		for range 20 {
			c.end()
		}
		for i := range 6 {
			assert.Equal(t, i < 5, c.begin(), "giving back more than was taken makes no slots")
		}
	})
}

// slots are what Envoy asks for one client, whose slots live for 5 minutes.
type slots struct {
	t *testing.T
	s *Service
}

func newSlots(t *testing.T, n int) slots {
	perClient := weir.Must(PerKey(limiter.FactoryFor[string](limiter.SlidingWindowOptions{
		PermitLimit: n, Window: 5 * time.Minute, SegmentsPerWindow: 10,
	}), nil))
	t.Cleanup(func() { _ = perClient.Close() })
	return slots{t, newService(t, nil, Descriptor{Key: "client", Limit: &Limit{Partitioned: perClient, OnOverrun: OverrunDebt}})}
}

// begin reports whether a request gets a slot.
func (c slots) begin() bool { return ask(c.t, c.s, describe("client", "a")).OverallCode == isOK }

// end is at the end of a request, also of a rejected one.
func (c slots) end() {
	assert.Equal(c.t, isOK, ask(c.t, c.s, giveBack(1, describe("client", "a"))).OverallCode)
}

// TestStore: limits of a store are asked at once, a rejected request gives back what it took, and an admitted one takes one
// round trip, although the answer has the level.
func TestStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := storetest.NewMemory()
		st := newStore(t, memory, nil)
		bucket := weir.Must(st.PartitionedTokenBucket("bucket", limiter.TokenBucketOptions{TokenLimit: 5, TokensPerPeriod: 1, ReplenishmentPeriod: time.Minute}, nil))
		window := weir.Must(st.SlidingWindow("window", limiter.SlidingWindowOptions{PermitLimit: 4, Window: time.Minute, SegmentsPerWindow: 6}, nil))
		s := newService(t, &ServiceOptions{Counters: weir.Must(NewSharedCounters(st, nil))},
			Descriptor{Key: "bucket", Limit: &Limit{Partitioned: bucket, OnOverrun: OverrunDebt}},
			Descriptor{Key: "window", Limit: &Limit{Limiter: window}}, Descriptor{Key: "envoy", Limit: windowOf(9, Hour)},
		)
		all := []*common.RateLimitDescriptor{describe("bucket", "a"), describe("window", ""), describe("envoy", ""), overriding(9, 2, describe("o", ""))}
		ask(t, s, all...)
		memory.Delay(10 * time.Millisecond)
		began := time.Now()
		r := ask(t, s, all...)
		assert.Equal(t, codeList{isOK, isOK, isOK, isOK, isOK}, codesOf(r))
		assert.Less(t, time.Since(began), 25*time.Millisecond, "there and back")
		for i, left := range []uint32{3, 2, 7, 7} {
			assert.Equal(t, left, r.Statuses[i].LimitRemaining)
		}
		assert.InDelta(t, 2*time.Minute, r.Statuses[0].DurationUntilReset.AsDuration(), float64(time.Second))
		assert.Positive(t, r.Statuses[1].DurationUntilReset.AsDuration())

		r = ask(t, s, withHits(3, describe("window", "")), withHits(2, describe("bucket", "a")), overriding(9, 2, describe("o", "")))
		assert.Equal(t, codeList{isOver, isOver, isOK, isOK}, codesOf(r))
		time.Sleep(time.Second) // refunds take time
		r = ask(t, s, withHits(0, describe("window", "")), withHits(0, describe("bucket", "a")), withHits(0, overriding(9, 2, describe("o", ""))))
		for i, left := range []uint32{2, 1, 7} {
			assert.Equal(t, left, r.Statuses[i].LimitRemaining, "debt stays, all else is given back")
		}
		ask(t, s, withHits(9, describe("bucket", "a")))
		r = ask(t, s, withHits(0, describe("bucket", "a")))
		assert.Equal(t, isOver, r.OverallCode)
		assert.Greater(t, r.Statuses[0].DurationUntilReset.AsDuration(), 8*time.Minute)

		memory.Fail(errors.New("connection refused"))
		for range 5 {
			assert.Equal(t, isOver, ask(t, s, all...).OverallCode)
		}
		began = time.Now()
		r = ask(t, s, all...)
		assert.Equal(t, codeList{isOver, isOver, isOver, isOver, isOver}, codesOf(r))
		assert.Equal(t, began, time.Now(), "the store counts as away")
		assert.Equal(t, "1", headersOf(r)["retry-after"])
	})
}

// TestStore_RejectedBefore: a limit in this process protects the store: what it rejects makes no round trip, except for hits
// that can be a report.
func TestStore_RejectedBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := storetest.NewMemory()
		st := newStore(t, memory, nil)
		fixed := func(name string) *store.Limiter {
			return weir.Must(st.FixedWindow(name, limiter.FixedWindowOptions{PermitLimit: 5, Window: time.Hour}, nil))
		}
		window, debt := fixed("window"), fixed("debt")
		bucket := newBucket(t, 1)
		listener := &recorder{}
		s := newService(t, &ServiceOptions{Listener: listener, Counters: weir.Must(NewSharedCounters(st, nil))},
			Descriptor{Key: "window", Limit: &Limit{Limiter: window}}, Descriptor{Key: "gate", Limit: &Limit{Limiter: bucket}},
			Descriptor{Key: "debt", Limit: &Limit{Limiter: debt, OnOverrun: OverrunDebt}}, rejectingRule("slow", time.Hour, false),
		)
		all := []*common.RateLimitDescriptor{describe("window", ""), describe("gate", ""), overriding(9, 6, describe("o", ""))}
		assert.Equal(t, isOK, ask(t, s, all...).OverallCode)
		calls := memory.Calls("Decide")
		for range 10 {
			r := ask(t, s, all...)
			assert.Equal(t, codeList{isOver, isOK, isOver, isOK}, codesOf(r))
			assert.Nil(t, r.Statuses[0].CurrentLimit, "not asked")
		}
		assert.Equal(t, calls, memory.Calls("Decide"))
		assert.Len(t, listener.events, 10)
		assert.Equal(t, codeList{isOver, isOver, isOK}, codesOf(ask(t, s, describe("gate", ""), describe("debt", ""))))
		r := ask(t, s, describe("window", ""), describe("slow", ""))
		assert.Equal(t, codeList{isOver, isOK, isOver}, codesOf(r))
		assert.EqualValues(t, 4, r.Statuses[0].LimitRemaining, "after the refund")
		time.Sleep(time.Second) // refunds take time
		assert.Equal(t, codeList{isOver, isOver, isOK}, codesOf(ask(t, s, describe("gate", ""), giveBack(1, describe("window", "")))))
		assert.EqualValues(t, 5, window.Statistics().AvailablePermits)
		assert.EqualValues(t, 4, debt.Statistics().AvailablePermits)
		assert.EqualValues(t, 8, ask(t, s, withHits(0, overriding(9, 6, describe("o", "")))).Statuses[0].LimitRemaining)
	})
}

// TestStore_Silent: while a store that does not answer is not yet known to be away, each request waits for it once.
func TestStore_Silent(t *testing.T) {
	for _, outage := range []store.OutagePolicy{store.FailOpen, store.FailClosed, store.FallBackLocally} {
		t.Run(outage.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				memory := storetest.NewMemory()
				st := newStore(t, memory, &store.Options{CallTimeout: 15 * time.Millisecond})
				o := &store.LimiterOptions{Outage: outage}
				if outage == store.FallBackLocally {
					o.LocalShare = 1
				}
				window := weir.Must(st.FixedWindow("window", limiter.FixedWindowOptions{PermitLimit: 5, Window: time.Hour}, o))
				bucket := newBucket(t, 1)
				s := newService(t, nil, Descriptor{Key: "window", Limit: &Limit{Limiter: window}}, Descriptor{Key: "gate", Limit: &Limit{Limiter: bucket}})
				ask(t, s, describe("window", ""), describe("gate", ""))
				memory.Delay(time.Second)
				for _, descriptors := range [][]*common.RateLimitDescriptor{
					{describe("window", "")}, {describe("window", ""), describe("gate", "")},
				} {
					began := time.Now()
					ask(t, s, descriptors...)
					assert.LessOrEqual(t, time.Since(began), 17*time.Millisecond)
				}
				memory.Delay(0)
				time.Sleep(time.Minute)
			})
		})
	}
}

// askAsEnvoy asks with the deadline that Envoy has unless told otherwise, and returns how long the answer took.
func askAsEnvoy(t *testing.T, s *Service, descriptors ...*common.RateLimitDescriptor) (codes codeList, after time.Duration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	began := time.Now()
	r, err := s.ShouldRateLimit(ctx, request(descriptors...))
	require.NoError(t, err)
	return codesOf(r), time.Since(began)
}

// TestStore_BeforeDeadline: a store that is too slow for the deadline of a request is not waited for, and the outage policies
// decide. One that only pauses does not count as away.
func TestStore_BeforeDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := storetest.NewMemory()
		st := newStore(t, memory, nil)
		fixed := func(name string, o store.LimiterOptions) Descriptor {
			w := weir.Must(st.FixedWindow(name, limiter.FixedWindowOptions{PermitLimit: 10, Window: time.Hour}, &o))
			return Descriptor{Key: name, Limit: &Limit{Limiter: w}}
		}
		bucket := newBucket(t, 100)
		s := newService(t, &ServiceOptions{Counters: weir.Must(NewSharedCounters(st, nil)), CountersFailOpen: true},
			fixed("open", store.LimiterOptions{Outage: store.FailOpen}), fixed("closed", store.LimiterOptions{}),
			fixed("local", store.LimiterOptions{Outage: store.FallBackLocally, LocalShare: 0.2}),
			Descriptor{Key: "envoy", Limit: windowOf(10, Hour)}, Descriptor{Key: "gate", Limit: &Limit{Limiter: bucket}},
		)
		ask := func(took time.Duration, descriptors ...*common.RateLimitDescriptor) codeList {
			codes, after := askAsEnvoy(t, s, descriptors...)
			assert.Equal(t, took, after)
			return codes
		}
		all := []*common.RateLimitDescriptor{describe("open", ""), describe("local", ""), describe("direct", ""), describe("envoy", "")}
		good := codeList{isOK, isOK, isOK, isOK, isOK}
		assert.Equal(t, good, ask(0, all...))
		assert.Equal(t, codeList{isOK, isOK}, ask(0, describe("closed", "")))

		memory.Delay(100 * time.Millisecond)
		const most = 15 * time.Millisecond
		assert.Equal(t, good, ask(most, all...))
		assert.Equal(t, good, ask(most, all...))
		assert.Equal(t, codeList{isOver, isOK, isOver, isOK, isOK}, ask(most, all...), "the local share is used up")
		assert.Equal(t, codeList{isOver, isOver}, ask(most, describe("closed", "")))
		assert.Equal(t, codeList{isOver, isOver, isOK}, ask(most, describe("closed", ""), describe("gate", "")))
		assert.Equal(t, codeList{isOver, isOver, isOK}, ask(most, withHits(1000, describe("closed", "")), describe("gate", "")))

		memory.Delay(0)
		time.Sleep(time.Second)
		require.NoError(t, st.Health().Err)
		assert.Equal(t, good, ask(0, all...))
		assert.Equal(t, codeList{isOK, isOK}, ask(0, describe("closed", "")))
	})
}

// TestStore_BeforeDeadlineTwice: a request that needs a second round trip, because it is rejected, is answered in time, too. What
// the second one does is done nevertheless.
func TestStore_BeforeDeadlineTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := storetest.NewMemory()
		st := newStore(t, memory, nil)
		w := weir.Must(st.SlidingWindow("debt", limiter.SlidingWindowOptions{PermitLimit: 10, Window: time.Hour, SegmentsPerWindow: 10}, nil))
		counters := weir.Must(NewSharedCounters(st, nil))
		s := newService(t, &ServiceOptions{Counters: counters}, Descriptor{Key: "debt", Limit: &Limit{Limiter: w, OnOverrun: OverrunDebt}})
		ask := func(most time.Duration, descriptors ...*common.RateLimitDescriptor) codeList {
			codes, after := askAsEnvoy(t, s, descriptors...)
			assert.LessOrEqual(t, after, most)
			return codes
		}
		override := describe("other", "")
		override.Limit = &common.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: 10, Unit: 3}
		all := []*common.RateLimitDescriptor{withHits(6, describe("debt", "")), withHits(6, override)}
		assert.Equal(t, codeList{isOK, isOK, isOK}, ask(0, all...))
		memory.Delay(12 * time.Millisecond)
		for _, d := range all { // not together: one could wait for the round trip of the other
			assert.Equal(t, codeList{isOver, isOver}, ask(15*time.Millisecond, d))
			time.Sleep(time.Second)
		}
		assert.Equal(t, codeList{isOK, isOK}, ask(15*time.Millisecond, giveBack(1, describe("debt", ""))), "takes two round trips")
		time.Sleep(time.Second)
		memory.Delay(0)
		level, err := w.Charge(t.Context(), 0)
		require.NoError(t, err)
		assert.EqualValues(t, 10-12+1, level.Remaining)
		assert.Equal(t, codeList{isOK, isOK}, ask(0, withHits(4, override)), "what was refused was taken back")
		require.NoError(t, st.Health().Err)
	})
}

// TestService_SetRules: a request goes on with the rules it began with, and later ones have the new rules.
func TestService_SetRules(t *testing.T) {
	before, after := newPot(5), newPot(5)
	s := newService(t, nil, potRule("k", before), potRule("l", before))
	before.hook = func() { s.SetRules(edge(t, potRule("k", after))) }
	ask(t, s, describe("k", ""), describe("l", ""))
	assert.EqualValues(t, 3, before.remaining())
	ask(t, s, describe("k", ""), describe("l", ""))
	assert.EqualValues(t, 3, before.remaining())
	assert.EqualValues(t, 4, after.remaining())
}

// TestService_ConcurrentSafe: requests of many goroutines, with limits in process and slow ones, while the rules change. In
// all no more is admitted than there is, and nothing is lost by rejected requests.
func TestService_ConcurrentSafe(t *testing.T) {
	const limit = 500
	bucket := newBucket(t, limit)
	slow, other := newPot(limit), newPot(limit+7)
	rules := func() *Rules {
		return edge(t,
			Descriptor{Key: "bucket", Limit: &Limit{Limiter: bucket}}, potRule("slow", slow), potRule("other", other),
			Descriptor{Key: "w", ValueToMetric: true, Limit: windowOf(math.MaxUint32, Week)},
		)
	}
	counters := weir.Must(NewCounters(&CountersOptions{MaxKeys: 1000}))
	var rejected atomic.Int64
	s, err := NewService(rules(), &ServiceOptions{
		Counters: counters, DynamicMetadata: true, Headers: true, Problem: true,
		Listener: pipeline.ListenerFunc(func(context.Context, pipeline.Event) { rejected.Add(1) }),
	})
	require.NoError(t, err)
	var admitted, asked atomic.Int64
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i := range 400 {
				r := ask(t, s, describe("slow", ""), describe("bucket", ""), describe("other", ""), describe("w", fmt.Sprint(i%3)))
				asked.Add(1)
				if r.OverallCode == isOK {
					admitted.Add(1)
				}
				if g == 0 {
					s.SetRules(rules())
				}
			}
		})
	}
	wg.Wait()
	assert.LessOrEqual(t, admitted.Load(), int64(limit))
	assert.Equal(t, limit-admitted.Load(), bucket.Statistics().AvailablePermits)
	assert.Equal(t, limit-admitted.Load(), slow.remaining())
	assert.Equal(t, limit+7-admitted.Load(), other.remaining())
	for range 20 { // a request that comes alone finds what is left
		if ask(t, s, describe("slow", ""), describe("bucket", "")).OverallCode == isOK {
			admitted.Add(1)
		}
	}
	assert.Positive(t, rejected.Load())
	var counted int64
	for i := range 3 {
		d := describe("w", fmt.Sprint(i))
		r := ask(t, s, withHits(0, d))
		counted += math.MaxUint32 - int64(r.Statuses[0].LimitRemaining)
	}
	assert.Equal(t, asked.Load(), counted)
}

// FuzzShouldRateLimit sends any request to some rules: there must be an answer that can be sent, one status for each
// descriptor, and nothing below 0 or lost.
func FuzzShouldRateLimit(f *testing.F) {
	for seed := range uint64(20) {
		random := rand.New(rand.NewPCG(seed, 9))
		r := request()
		for range 1 + random.IntN(4) {
			d := describe([]string{"pot", "window", "debt", "rest", "quota", "x"}[random.IntN(6)], randomText(random, "ab", 2))
			d.IsNegativeHits = random.IntN(4) == 0
			if random.IntN(2) == 0 {
				withHits(random.Uint64()>>random.IntN(64), d)
			}
			if random.IntN(4) == 0 {
				overriding(random.Uint32(), 2, d)
			}
			r.Descriptors = append(r.Descriptors, d)
		}
		raw, _ := proto.Marshal(r)
		f.Add(raw)
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		r := request()
		if proto.Unmarshal(raw, r) != nil {
			return
		}
		pot, debt, rest, quota := newPot(10), newPot(10), newPot(10), newPot(1)
		s := newService(t, &ServiceOptions{DynamicMetadata: true, Headers: true, Problem: true, Listener: &recorder{}},
			potRule("pot", pot), Descriptor{Key: "window", Limit: windowOf(3, Year)},
			Descriptor{Key: "debt", Limit: &Limit{Limiter: debt, OnOverrun: OverrunDebt}},
			Descriptor{Key: "rest", Limit: &Limit{Limiter: rest, OnOverrun: OverrunRest}},
			Descriptor{Key: "quota", DetailedMetric: true, Limit: &Limit{Limiter: quota, Quota: true}},
		)
		for range 3 {
			before := pot.remaining()
			response, err := s.ShouldRateLimit(t.Context(), r)
			if err != nil {
				require.True(t, r.Domain == "" || len(r.Descriptors) == 0)
				return
			}
			require.Len(t, response.Statuses, len(r.Descriptors))
			require.NotZero(t, response.OverallCode)
			_, err = proto.Marshal(response)
			require.NoError(t, err)
			if response.OverallCode == isOver {
				require.GreaterOrEqual(t, pot.remaining(), before)
			}
			for _, p := range []int64{pot.remaining(), rest.remaining(), quota.remaining()} {
				require.GreaterOrEqual(t, p, int64(0))
			}
		}
	})
}
