package weirrls

import (
	"context"
	"errors"
	"math"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/limiter"
)

func potRule(key string, p *pot) Descriptor { return Descriptor{Key: key, Limit: &Limit{Limiter: p}} }

func TestExact_ARejectedRequestCostsNothing(t *testing.T) {
	a, b, c := newPot(5), newPot(1), newPot(5)
	s := newService(t, nil, potRule("a", a), potRule("b", b), potRule("c", c))
	all := []*common.RateLimitDescriptor{describe("a", ""), describe("b", ""), withHits(2, describe("c", ""))}
	assert.Equal(t, codeList{isOK, isOK, isOK, isOK}, codesOf(ask(t, s, all...)))
	r := ask(t, s, all...)
	assert.Equal(t, codeList{isOver, isOK, isOver, isOK}, codesOf(r))
	assert.Equal(t, []int64{4, 0, 3}, []int64{a.remaining(), b.remaining(), c.remaining()})
	assert.EqualValues(t, 4, r.Statuses[0].LimitRemaining, "after the refund")
}

func TestExact_Hits(t *testing.T) {
	p := newPot(5)
	s := newService(t, nil, potRule("p", p))
	r, err := s.ShouldRateLimit(t.Context(), request(describe("p", "")))
	require.NoError(t, err)
	assert.Equal(t, isOK, r.OverallCode)
	assert.EqualValues(t, 4, p.remaining(), "no hits_addend: one hit")
	three := request(describe("p", ""))
	three.HitsAddend = 3
	_, err = s.ShouldRateLimit(t.Context(), three)
	require.NoError(t, err)
	assert.EqualValues(t, 1, p.remaining())
	three.Descriptors[0] = withHits(0, describe("p", ""))
	r, err = s.ShouldRateLimit(t.Context(), three)
	require.NoError(t, err)
	assert.Equal(t, isOK, r.OverallCode, "the descriptor's 0 replaces the request's 3")
	assert.Equal(t, isOver, ask(t, s, withHits(2, describe("p", ""))).OverallCode)
	assert.Equal(t, isOK, ask(t, s, withHits(1, describe("p", ""))).OverallCode)
	assert.Equal(t, isOver, ask(t, s, withHits(0, describe("p", ""))).OverallCode, "nothing is left")
	for _, n := range []uint64{6, math.MaxInt32, math.MaxInt32 + 1, math.MaxInt64, math.MaxInt64 + 1, math.MaxUint64} {
		assert.Equal(t, codeList{isOver, isOver}, codesOf(ask(t, s, withHits(n, describe("p", "")))))
	}
	assert.Equal(t, isOK, ask(t, s, giveBack(math.MaxUint64, describe("p", ""))).OverallCode)
	assert.EqualValues(t, 5, p.remaining())
	r = ask(t, s, withHits(math.MaxUint64, describe("p", "")))
	assert.Equal(t, isOver, r.OverallCode, "also while all are there")
	assert.Nil(t, r.Statuses[0].DurationUntilReset, "it can never be granted")
	assert.Empty(t, r.ResponseHeadersToAdd)
}

func TestExact_GivenBackStaysSo(t *testing.T) {
	full, slots := newPot(1), newPot(2)
	s := newService(t, nil, potRule("full", full), potRule("slots", slots))
	ask(t, s, describe("full", ""), withHits(2, describe("slots", "")))
	r := ask(t, s, describe("full", ""), giveBack(1, describe("slots", "")))
	assert.Equal(t, codeList{isOver, isOver, isOK}, codesOf(r))
	assert.EqualValues(t, 1, slots.remaining())
	assert.EqualValues(t, 1, r.Statuses[1].LimitRemaining)
	assert.Nil(t, r.Statuses[1].CurrentLimit, "no size is known")
}

func TestExact_OnOverrun(t *testing.T) {
	for overrun, want := range map[Overrun]int64{OverrunNothing: 3, OverrunDebt: -1, OverrunRest: 0} {
		t.Run(overrun.String(), func(t *testing.T) {
			p, other := newPot(5), newPot(1)
			s := newService(t, nil, Descriptor{Key: "p", Limit: &Limit{Limiter: p, OnOverrun: overrun}}, potRule("other", other))
			ask(t, s, withHits(2, describe("p", "")))
			r := ask(t, s, withHits(4, describe("p", "")))
			assert.Equal(t, isOver, r.OverallCode)
			assert.Equal(t, want, p.remaining())
			assert.Equal(t, time.Minute, r.Statuses[0].DurationUntilReset.AsDuration())

			// Another limit rejects: only debt stays.
			p.left, other.left = 5, 0
			ask(t, s, withHits(4, describe("p", "")), describe("other", ""))
			assert.Equal(t, overrun == OverrunDebt, p.remaining() == 1)
			p.left = 5
			ask(t, s, withHits(7, describe("p", "")), describe("other", ""))
			assert.Equal(t, map[Overrun]int64{OverrunNothing: 5, OverrunDebt: -2, OverrunRest: 0}[overrun], p.remaining(), "more than the limit")
		})
	}
}

// A number that no request can have cost, such as a negative one without its sign, does not lock the key for years.
func TestExact_MistakesMakeNoDebt(t *testing.T) {
	p := newPot(5)
	s := newService(t, nil, Descriptor{Key: "p", Limit: &Limit{Limiter: p, OnOverrun: OverrunDebt}})
	for _, n := range []uint64{maxHits + 1, math.MaxInt64, math.MaxInt64 + 1, math.MaxUint64} {
		assert.Equal(t, codeList{isOver, isOver}, codesOf(ask(t, s, withHits(n, describe("p", "")))))
		assert.EqualValues(t, 5, p.remaining())
	}
	assert.Equal(t, isOver, ask(t, s, withHits(maxHits, describe("p", ""))).OverallCode)
	assert.Negative(t, p.remaining(), "a report counts in full")

	large := newPot(1 << 40)
	s = newService(t, nil, Descriptor{Key: "p", Limit: &Limit{Limiter: large, OnOverrun: OverrunDebt}})
	assert.Equal(t, isOK, ask(t, s, withHits(1<<40-5, describe("p", ""))).OverallCode)
	assert.Equal(t, isOver, ask(t, s, withHits(maxHits+1, describe("p", ""))).OverallCode)
	assert.Negative(t, large.remaining(), "within such a limit it is no mistake")
}

func TestExact_OnOverrunRestWhileOthersTake(t *testing.T) {
	p := newPot(5)
	s := newService(t, nil, Descriptor{Key: "p", Limit: &Limit{Limiter: p, OnOverrun: OverrunRest}})
	p.left = 3
	p.hook = func() { p.left = max(p.left-1, 0) } // another request takes one before each attempt
	assert.Equal(t, isOver, ask(t, s, withHits(5, describe("p", ""))).OverallCode)
	assert.EqualValues(t, 0, p.remaining())
}

func TestExact_Failures(t *testing.T) {
	boom := errors.New("boom")
	for name, breakIt := range map[string]func(p *pot){
		"error":  func(p *pot) { p.failure = boom },
		"closed": func(p *pot) { p.failure = limiter.ErrClosed },
		"panic":  func(p *pot) { p.hook = func() { panic(boom) } },
	} {
		t.Run(name, func(t *testing.T) {
			for _, open := range []bool{false, true} {
				good, bad := newPot(5), newPot(5)
				breakIt(bad)
				s := newService(t, nil, potRule("good", good), Descriptor{Key: "bad", Limit: &Limit{Limiter: bad, FailOpen: open}})
				r := ask(t, s, describe("good", ""), describe("bad", ""))
				assert.Equal(t, open, r.OverallCode == isOK)
				assert.Equal(t, open, good.remaining() == 4)
				assert.Equal(t, isOver, ask(t, s, withHits(math.MaxUint64, describe("bad", ""))).OverallCode, "a limit is passed by no number of hits")
			}
		})
	}
}

// TestExact_Goexit: a limiter that ends its goroutine is a failure if it is asked on a goroutine of its own. On the caller's
// there is no answer, and what was taken is given back.
func TestExact_Goexit(t *testing.T) {
	good, bad, slow := newPot(5), newPot(5), newPot(5)
	bad.hook = runtime.Goexit
	s := newService(t, nil, potRule("good", good), potRule("bad", bad), potRule("slow", slow))
	r := ask(t, s, describe("good", ""), describe("bad", ""), describe("slow", ""))
	assert.Equal(t, codeList{isOver, isOK, isOver, isOK}, codesOf(r))
	assert.EqualValues(t, 5, good.remaining())

	bucket := weir.Must(limiter.NewTokenBucket(limiter.TokenBucketOptions{TokenLimit: 5, TokensPerPeriod: 1, ReplenishmentPeriod: time.Hour}))
	t.Cleanup(func() { _ = bucket.Close() })
	s = newService(t, nil, Descriptor{Key: "bucket", Limit: &Limit{Limiter: bucket}}, potRule("bad", bad))
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = s.ShouldRateLimit(context.Background(), request(describe("bucket", ""), describe("bad", "")))
		t.Error("it returned")
	}()
	<-done
	assert.EqualValues(t, 5, bucket.Statistics().AvailablePermits)
	assert.Equal(t, isOK, ask(t, s, describe("bucket", "")).OverallCode)
}

func TestExact_CallerGone(t *testing.T) {
	taken, waiting := newPot(5), newPot(5)
	s := newService(t, nil, potRule("taken", taken), potRule("waiting", waiting))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	waiting.failure = ctx.Err()
	_, err := s.ShouldRateLimit(ctx, request(describe("taken", ""), describe("waiting", "")))
	assert.Equal(t, codes.Canceled, status.Code(err))
	assert.EqualValues(t, 4, taken.remaining(), "Envoy may have let the request pass")

	r, err := s.ShouldRateLimit(ctx, request(describe("taken", "")))
	require.NoError(t, err, "there was a decision")
	assert.Equal(t, isOK, r.OverallCode)
}

func TestExact_Shadow(t *testing.T) {
	shadow, real := newPot(1), newPot(5)
	s := newService(t, nil, Descriptor{Key: "shadow", Limit: &Limit{Limiter: shadow, Shadow: true}}, potRule("real", real))
	for range 2 {
		r := ask(t, s, describe("shadow", ""), describe("real", ""))
		assert.Equal(t, codeList{isOK, isOK, isOK}, codesOf(r))
		assert.Zero(t, r.Statuses[0].LimitRemaining)
	}
	assert.EqualValues(t, 3, real.remaining())
}

func TestService_Shadow(t *testing.T) {
	one, real := newPot(1), newPot(5)
	s := newService(t, &ServiceOptions{Shadow: true}, potRule("one", one), potRule("real", real))
	ask(t, s, describe("one", ""))
	r := ask(t, s, describe("one", ""), describe("real", ""))
	assert.Equal(t, codeList{isOK, isOver, isOK}, codesOf(r), "the statuses say what would have been")
	assert.Empty(t, r.ResponseHeadersToAdd)
	assert.EqualValues(t, 4, real.remaining())
}

func TestQuota(t *testing.T) {
	q1, q2, ordinary := newPot(1), newPot(2), newPot(9)
	s := newService(t, nil,
		Descriptor{Key: "q1", Limit: &Limit{Limiter: q1, Quota: true}},
		Descriptor{Key: "q2", Limit: &Limit{Limiter: q2, Quota: true}},
		potRule("ordinary", ordinary),
	)
	all := []*common.RateLimitDescriptor{describe("q1", ""), describe("q2", ""), describe("ordinary", ""), describe("none", "")}
	assert.Equal(t, codeList{isOK, isOK, isOK, isOK, isOK}, codesOf(ask(t, s, all...)))
	assert.Equal(t, codeList{isOK, isOver, isOK, isOK, isOK}, codesOf(ask(t, s, all...)))
	assert.Equal(t, codeList{isOver, isOver, isOver, isOK, isOK}, codesOf(ask(t, s, all...)))
	assert.EqualValues(t, 7, ordinary.remaining())
}

func TestService_Quota(t *testing.T) {
	s := newService(t, &ServiceOptions{Quota: true}, potRule("a", newPot(1)), potRule("b", newPot(2)), named("free", "", "free"))
	assert.Equal(t, isOK, ask(t, s, describe("a", ""), describe("b", "")).OverallCode)
	assert.Equal(t, isOK, ask(t, s, describe("a", ""), describe("none", "")).OverallCode, "a descriptor without a limit is not over")
	assert.Equal(t, isOK, ask(t, s, describe("a", ""), describe("b", "")).OverallCode)
	assert.Equal(t, isOver, ask(t, s, describe("a", ""), describe("b", "")).OverallCode)
	assert.Equal(t, isOver, ask(t, s, describe("a", ""), describe("free", "")).OverallCode, "an unlimited descriptor does not count")
}

func TestReplaces(t *testing.T) {
	wide, narrow := newPot(5), newPot(5)
	s := newService(t, nil,
		Descriptor{Key: "wide", Limit: &Limit{Name: "wide", Limiter: wide}},
		Descriptor{Key: "narrow", Limit: &Limit{Name: "narrow", Limiter: narrow, Replaces: []string{"wide"}}},
		Descriptor{Key: "vip", Limit: &Limit{Unlimited: true, Replaces: []string{"wide", "narrow", "free"}}},
		Descriptor{Key: "free", Limit: &Limit{Name: "free", Unlimited: true}},
	)
	r := ask(t, s, describe("wide", ""), describe("narrow", ""))
	assert.Equal(t, codeList{isOK, isOK, isOK}, codesOf(r))
	assert.Zero(t, r.Statuses[0].LimitRemaining)
	assert.Equal(t, []int64{5, 4}, []int64{wide.remaining(), narrow.remaining()})
	r = ask(t, s, describe("wide", ""), describe("narrow", ""), describe("vip", ""), describe("free", ""))
	assert.Equal(t, []int64{5, 4}, []int64{wide.remaining(), narrow.remaining()})
	for _, i := range []int{2, 3} {
		assert.Equal(t, uint32(math.MaxUint32), r.Statuses[i].LimitRemaining)
		assert.Nil(t, r.Statuses[i].CurrentLimit)
	}
}

func TestShouldRateLimit_BadRequests(t *testing.T) {
	s := newService(t, nil, potRule("k", newPot(1)))
	for want, r := range map[string]func() error{
		"weirrls: domain must not be empty": func() error {
			_, err := s.ShouldRateLimit(t.Context(), withDomain("", describe("k", "")))
			return err
		},
		"weirrls: descriptors must not be empty": func() error {
			_, err := s.ShouldRateLimit(t.Context(), request())
			return err
		},
	} {
		err := r()
		assert.Equal(t, codes.InvalidArgument, status.Code(err))
		assert.Equal(t, want, status.Convert(err).Message())
	}
	_, err := s.ShouldRateLimit(t.Context(), nil)
	require.Error(t, err)
	hostile := []*common.RateLimitDescriptor{
		nil, {}, {Entries: []*common.RateLimitDescriptor_Entry{nil}}, describe("", ""), describe("k", "", "", ""),
		{Limit: &common.RateLimitDescriptor_RateLimitOverride{Unit: 1}}, describe("\xff", "\xff"), withHits(math.MaxUint64, describe("k", "\x00")),
		giveBack(math.MaxUint64, describe("k", strings.Repeat("x", 1<<20))),
	}
	s.options.DynamicMetadata = true
	r := ask(t, s, hostile...)
	assert.Len(t, r.Statuses, len(hostile))
}

func TestStatus_OfLimiters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bucket := weir.Must(limiter.NewTokenBucket(limiter.TokenBucketOptions{TokenLimit: 10, TokensPerPeriod: 1, ReplenishmentPeriod: 6 * time.Second}))
		window := weir.Must(limiter.NewFixedWindow(limiter.FixedWindowOptions{PermitLimit: 2, Window: 10 * time.Second}))
		sliding := weir.Must(limiter.NewSlidingWindow(limiter.SlidingWindowOptions{PermitLimit: 3, Window: time.Hour, SegmentsPerWindow: 6}))
		perKey := weir.Must(PerKey(limiter.FactoryFor[string](limiter.FixedWindowOptions{PermitLimit: 1, Window: time.Second}), &limiter.PartitionedOptions{MaxPartitions: 1}))
		defer func() { _, _, _, _ = bucket.Close(), window.Close(), sliding.Close(), perKey.Close() }()
		s := newService(t, nil,
			Descriptor{Key: "bucket", Limit: &Limit{Name: "burst", Limiter: bucket}}, Descriptor{Key: "window", Limit: &Limit{Limiter: window}},
			Descriptor{Key: "sliding", Limit: &Limit{Limiter: sliding}},
			Descriptor{Key: "key", Limit: &Limit{Partitioned: perKey}},
		)
		all := []*common.RateLimitDescriptor{
			describe("bucket", ""), describe("window", ""), describe("sliding", ""), describe("key", "a"),
		}
		r := ask(t, s, all...)
		requests, remaining, units := []uint32{10, 2, 3, 1}, []uint32{9, 1, 2, 0}, []Unit{Minute, 0, Hour, Second}
		for i := range requests {
			assert.Equal(t, requests[i], r.Statuses[i].CurrentLimit.RequestsPerUnit)
			assert.Equal(t, protoUnits[units[i]], r.Statuses[i].CurrentLimit.Unit)
			assert.Equal(t, remaining[i], r.Statuses[i].LimitRemaining)
		}
		assert.Equal(t, "burst", r.Statuses[0].CurrentLimit.Name)
		assert.Nil(t, ask(t, s, describe("key", "b")).Statuses[0].CurrentLimit, "there is no limiter for another key")
		assert.Equal(t, 6*time.Second, r.Statuses[0].DurationUntilReset.AsDuration())
		assert.Equal(t, 10*time.Second, r.Statuses[1].DurationUntilReset.AsDuration())

		time.Sleep(500 * time.Millisecond)
		r = ask(t, s, all...)
		assert.Equal(t, codeList{isOver, isOK, isOK, isOK, isOver}, codesOf(r))
		assert.EqualValues(t, 9, r.Statuses[0].LimitRemaining, "what a rejected request took is there again")
		assert.Equal(t, 500*time.Millisecond, r.Statuses[3].DurationUntilReset.AsDuration())
		assert.Equal(t, map[string]string{"retry-after": "1"}, headersOf(r))

		require.NoError(t, bucket.Reconfigure(limiter.TokenBucketOptions{TokenLimit: 20, TokensPerPeriod: 1, ReplenishmentPeriod: 6 * time.Second}))
		assert.EqualValues(t, 20, ask(t, s, describe("bucket", "")).Statuses[0].CurrentLimit.RequestsPerUnit)
	})
}
