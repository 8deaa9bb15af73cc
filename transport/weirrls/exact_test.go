package weirrls

import (
	"context"
	"errors"
	"math"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/limiter/custom"
)

func potRule(key string, p *pot) Descriptor { return Descriptor{Key: key, Limit: &Limit{Limiter: p}} }

// A potLimit is a limit by a pot of n.
type potLimit struct {
	n int64
	Limit
}

// TestExact has what requests get and cost, in scripts: see play.
func TestExact(t *testing.T) {
	type limits = map[string]potLimit
	type left = map[string]int64
	for name, tt := range map[string]struct {
		options ServiceOptions
		limits  limits
		script  string
		left    left
	}{
		"a rejected request costs nothing": {
			limits: limits{"a": {n: 5}, "b": {n: 1}, "c": {n: 5}},
			script: "a b c+2 -> ok: ok ok ok; a b c+2 -> over: ok over ok",
			left:   left{"a": 4, "b": 0, "c": 3},
		},
		"what is given back stays so": {
			limits: limits{"full": {n: 1}, "slots": {n: 2}},
			script: "full slots+2 -> ok: ok ok; full slots-1 -> over: over ok",
			left:   left{"slots": 1},
		},
		"nothing on overrun": {
			limits: limits{"p": {n: 5}, "other": {n: 0}},
			script: "p+2 -> ok: ok; p+4 -> over: over; p+6 -> over: over; p+3 other -> over: ok over; p+9 other -> over: over over",
			left:   left{"p": 3},
		},
		"debt on overrun": {
			limits: limits{"p": {5, Limit{OnOverrun: OverrunDebt}}, "other": {n: 0}},
			script: "p+2 -> ok: ok; p+4 -> over: over; p-6 -> ok: ok; p+3 other -> over: ok over; p+9 other -> over: over over",
			left:   left{"p": -7},
		},
		"the rest on overrun": {
			limits: limits{"p": {5, Limit{OnOverrun: OverrunRest}}, "other": {n: 0}},
			script: "p+2 -> ok: ok; p+4 -> over: over; p-5 -> ok: ok; p+4 other -> over: ok over; p+0 -> ok: ok; p+9 -> over: over",
			left:   left{"p": 0},
		},
		"a limit's shadow": {
			limits: limits{"shadow": {1, Limit{Shadow: true}}, "real": {n: 5}},
			script: "shadow real -> ok: ok ok; shadow real -> ok: ok ok",
			left:   left{"shadow": 0, "real": 3},
		},
		"the service's shadow says what would have been": {
			options: ServiceOptions{Shadow: true},
			limits:  limits{"one": {n: 1}, "real": {n: 5}},
			script:  "one -> ok: ok; one real -> ok: over ok",
			left:    left{"real": 4},
		},
		"a quota": {
			limits: limits{"q1": {1, Limit{Quota: true}}, "q2": {2, Limit{Quota: true}}, "ordinary": {n: 9}},
			script: `q1 q2 ordinary none -> ok: ok ok ok ok; q1 q2 ordinary none -> ok: over ok ok ok
				q1 q2 ordinary none -> over: over over ok ok`,
			left: left{"ordinary": 7},
		},
		"a quota of the service": { // a descriptor without a limit is not over; one with an unlimited limit does not count
			options: ServiceOptions{Quota: true},
			limits:  limits{"a": {n: 1}, "b": {n: 2}, "free": {0, Limit{Unlimited: true}}},
			script:  "a b -> ok: ok ok; a none -> ok: over ok; a b -> ok: over ok; a b -> over: over over; a free -> over: over ok",
		},
		"limits that are replaced": {
			limits: limits{
				"wide": {5, Limit{Name: "wide"}}, "narrow": {5, Limit{Name: "narrow", Replaces: []string{"wide"}}},
				"vip": {0, Limit{Unlimited: true, Replaces: []string{"wide", "narrow", "free"}}}, "free": {0, Limit{Name: "free", Unlimited: true}},
			},
			script: "wide narrow -> ok: ok ok; wide narrow vip free -> ok: ok ok ok ok; wide+9 free -> over: over ok",
			left:   left{"wide": 5, "narrow": 4},
		},
	} {
		t.Run(name, func(t *testing.T) {
			pots := make(map[string]*pot)
			var rules []Descriptor
			for key, l := range tt.limits {
				limit := l.Limit
				if !limit.Unlimited {
					pots[key] = newPot(l.n)
					limit.Limiter = pots[key]
				}
				rules = append(rules, Descriptor{Key: key, Limit: &limit})
			}
			play(t, newService(t, &tt.options, rules...), tt.script)
			for key, left := range tt.left {
				assert.Equal(t, left, pots[key].remaining(), key)
			}
		})
	}
}

// play asks a service and compares the codes. A script has requests with the keys of their descriptors, perhaps with hits, as
// in "a b+2 c-1", where the latter are given back; and behind the arrow the overall code and those of the statuses.
func play(t *testing.T, s *Service, script string) {
	t.Helper()
	for line := range strings.FieldsFuncSeq(script, func(r rune) bool { return r == ';' || r == '\n' }) {
		call, want, _ := strings.Cut(line, " -> ")
		var r []*common.RateLimitDescriptor
		for word := range strings.FieldsSeq(call) {
			at := strings.IndexAny(word+"+", "+-")
			d := describe(word[:at], "")
			if at < len(word) {
				n, err := strconv.ParseUint(word[at+1:], 10, 64)
				require.NoError(t, err)
				withHits(n, d).IsNegativeHits = word[at] == '-'
			}
			r = append(r, d)
		}
		text := map[ratelimitv3.RateLimitResponse_Code]string{isOK: "ok", isOver: "over"}
		response := ask(t, s, r...)
		got := text[response.OverallCode] + ":"
		for _, status := range response.Statuses {
			got += " " + text[status.Code]
		}
		assert.Equal(t, want, got, line)
	}
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

// TestExact_Levels: what is left is told after refunds, and without a limit of known size there is no current_limit.
func TestExact_Levels(t *testing.T) {
	a, none := newPot(5), newPot(1)
	none.left = 0
	s := newService(t, nil, potRule("a", a), potRule("none", none), Descriptor{Key: "debt", Limit: &Limit{Limiter: newPot(2), OnOverrun: OverrunDebt}},
		Descriptor{Key: "free", Limit: &Limit{Unlimited: true}})
	r := ask(t, s, withHits(2, describe("a", "")), describe("none", ""), describe("free", ""))
	assert.EqualValues(t, 5, r.Statuses[0].LimitRemaining, "after the refund")
	assert.Nil(t, r.Statuses[0].CurrentLimit)
	assert.Equal(t, time.Minute, r.Statuses[1].DurationUntilReset.AsDuration())
	assert.Equal(t, uint32(math.MaxUint32), r.Statuses[2].LimitRemaining)
	assert.Zero(t, ask(t, s, withHits(3, describe("debt", ""))).Statuses[0].LimitRemaining, "below 0")
	assert.EqualValues(t, 1, ask(t, s, giveBack(2, describe("debt", ""))).Statuses[0].LimitRemaining)
}

// lending is a limiter that gets its permits back, and counts how many.
type lending struct{ released *int }

func (l lending) TryAcquire(_ context.Context, n int) (limiter.Lease, error) {
	return custom.Granted(n, func() { *l.released += n }), nil
}

func (l lending) Acquire(context.Context, int) (limiter.Lease, error) {
	panic("the service does not wait")
}

func TestExact_ReleasesLeases(t *testing.T) {
	released := 0
	ask(t, newService(t, nil, Descriptor{Key: "k", Limit: &Limit{Limiter: lending{&released}}}), withHits(3, describe("k", "")))
	assert.Equal(t, 3, released)
}

// TestExact_RefusedAndFailed: a request that was refused stays so if the limiter cannot be charged for it.
func TestExact_RefusedAndFailed(t *testing.T) {
	for _, overrun := range []Overrun{OverrunDebt, OverrunRest} {
		p := chargeless{newPot(1)}
		s := newService(t, nil, Descriptor{Key: "p", Limit: &Limit{Limiter: p, OnOverrun: overrun, FailOpen: true}})
		assert.Equal(t, isOver, ask(t, s, withHits(2, describe("p", ""))).OverallCode)
		assert.Equal(t, isOK, ask(t, s, giveBack(1, describe("p", ""))).OverallCode)
	}
}

// chargeless is a pot that fails to be charged.
type chargeless struct{ *pot }

func (chargeless) Charge(context.Context, int) (limiter.Level, error) {
	return limiter.Level{}, errors.New("boom")
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

	bucket := newBucket(t, 5)
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

func TestShouldRateLimit_BadRequests(t *testing.T) {
	s := newService(t, nil, potRule("k", newPot(1)))
	for want, r := range map[string]*ratelimitv3.RateLimitRequest{
		"weirrls: domain must not be empty": withDomain("", describe("k", "")), "weirrls: descriptors must not be empty": request(),
	} {
		_, err := s.ShouldRateLimit(t.Context(), r)
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
