package weirrls

import (
	"context"
	"errors"
	"math"
	"testing"
	"testing/synctest"
	"time"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

func windowOf(n uint32, u Unit) *Limit { return &Limit{Window: &Window{RequestsPerUnit: n, Unit: u}} }

// overriding returns d with a limit of its own.
func overriding(n uint32, u typev3.RateLimitUnit, d *common.RateLimitDescriptor) *common.RateLimitDescriptor {
	d.Limit = &common.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: n, Unit: u}
	return d
}

func TestWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // the clock begins at a whole day
		s := newService(t, nil, Descriptor{Key: "k", Limit: &Limit{Name: "calls", Window: &Window{RequestsPerUnit: 3, Unit: Minute}}})
		time.Sleep(10*time.Second + 900*time.Millisecond)
		r := ask(t, s, describe("k", "a"))
		assert.Equal(t, isOK, r.OverallCode)
		st := r.Statuses[0]
		assert.Equal(t, "calls", st.CurrentLimit.Name)
		assert.Equal(t, protoUnits[Minute], st.CurrentLimit.Unit)
		assert.EqualValues(t, 3, st.CurrentLimit.RequestsPerUnit)
		assert.EqualValues(t, 2, st.LimitRemaining)
		assert.Equal(t, 50*time.Second, st.DurationUntilReset.AsDuration())
		assert.Empty(t, r.ResponseHeadersToAdd)

		assert.EqualValues(t, 0, ask(t, s, withHits(2, describe("k", "a"))).Statuses[0].LimitRemaining)
		assert.Equal(t, isOK, ask(t, s, withHits(0, describe("k", "a"))).OverallCode, "looking passes until more than the limit is counted")
		r = ask(t, s, describe("k", "a"))
		assert.Equal(t, codeList{isOver, isOver}, codesOf(r))
		assert.Zero(t, r.Statuses[0].LimitRemaining)
		assert.Equal(t, map[string]string{"retry-after": "50"}, headersOf(r))
		assert.Equal(t, isOver, ask(t, s, withHits(0, describe("k", "a"))).OverallCode, "the rejected hit was counted")
		assert.Equal(t, isOK, ask(t, s, describe("k", "b")).OverallCode, "another value")

		assert.Equal(t, isOK, ask(t, s, giveBack(2, describe("k", "a"))).OverallCode)
		assert.EqualValues(t, 0, ask(t, s, describe("k", "a")).Statuses[0].LimitRemaining)
		time.Sleep(50 * time.Second)
		assert.EqualValues(t, 3, ask(t, s, giveBack(9, describe("k", "a"))).Statuses[0].LimitRemaining)
		assert.Equal(t, codeList{isOver, isOver}, codesOf(ask(t, s, withHits(math.MaxUint64, describe("k", "a")))))
	})
}

// TestWindow_RejectedDescriptorsCount: the other descriptors of a rejected request are counted, as by envoyproxy/ratelimit.
func TestWindow_RejectedDescriptorsCount(t *testing.T) {
	s := newService(t, nil, Descriptor{Key: "a", Limit: windowOf(0, Day)}, Descriptor{Key: "b", Limit: windowOf(2, Day)})
	for _, want := range []codeList{{isOver, isOver, isOK}, {isOver, isOver, isOK}, {isOver, isOver, isOver}} {
		assert.Equal(t, want, codesOf(ask(t, s, describe("a", ""), describe("b", ""))))
	}
}

func TestWindow_SharedCounters(t *testing.T) {
	s := newService(t, nil,
		Descriptor{Key: "path", Value: "/a*", ShareThreshold: true, Limit: windowOf(1, Day)},
		Descriptor{Key: "path", Value: "/b*", Limit: windowOf(1, Day)},
	)
	assert.Equal(t, isOK, ask(t, s, describe("path", "/a1")).OverallCode)
	assert.Equal(t, isOver, ask(t, s, describe("path", "/a2")).OverallCode)
	assert.Equal(t, isOK, ask(t, s, describe("path", "/b1")).OverallCode)
	assert.Equal(t, isOK, ask(t, s, describe("path", "/b2")).OverallCode)
	// The same descriptor twice: the second one is counted on top of the first one.
	assert.Equal(t, codeList{isOver, isOK, isOver}, codesOf(ask(t, s, describe("path", "/b3"), describe("path", "/b3"))))
}

func TestOverride(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService(t, nil, Descriptor{Key: "k", Limit: windowOf(100, Minute)}, Descriptor{Key: "none", Limit: windowOf(0, Minute)})
		two := func(n uint64) *common.RateLimitDescriptor {
			return withHits(n, overriding(2, typev3.RateLimitUnit_MINUTE, describe("o", "x")))
		}
		r := ask(t, s, two(1))
		assert.EqualValues(t, 1, r.Statuses[0].LimitRemaining)
		assert.Equal(t, protoUnits[Minute], r.Statuses[0].CurrentLimit.Unit)
		assert.Empty(t, r.Statuses[0].CurrentLimit.Name)
		assert.Equal(t, isOver, ask(t, s, two(5)).OverallCode, "and costs nothing")
		assert.Equal(t, codeList{isOver, isOK, isOver}, codesOf(ask(t, s, two(1), describe("none", ""))))
		r = ask(t, s, two(1))
		assert.Equal(t, codeList{isOK, isOK}, codesOf(r), "the rejected request has cost nothing")
		assert.Equal(t, isOver, ask(t, s, two(0)).OverallCode, "nothing is left")
		assert.Equal(t, isOK, ask(t, s, giveBack(1, two(1))).OverallCode)
		assert.Equal(t, isOK, ask(t, s, two(0)).OverallCode)

		// An unknown domain has no limits, and an unknown unit leaves the limit to the rules.
		unknown, err := s.ShouldRateLimit(t.Context(), withDomain("other", two(9)))
		require.NoError(t, err)
		assert.Equal(t, codeList{isOK, isOK}, codesOf(unknown))
		assert.Nil(t, unknown.Statuses[0].CurrentLimit)
		for _, unit := range []typev3.RateLimitUnit{0, 8, -1} {
			r := ask(t, s, overriding(1, unit, describe("k", "v")))
			assert.EqualValues(t, 100, r.Statuses[0].CurrentLimit.RequestsPerUnit)
		}
		assert.Equal(t, protoUnits[Week], ask(t, s, overriding(1, 7, describe("k", "v"))).Statuses[0].CurrentLimit.Unit)
	})
}

func TestOverride_Multiplier(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService(t, nil)
		times := func(n uint32) *common.RateLimitDescriptor {
			d := overriding(1, typev3.RateLimitUnit_SECOND, describe("o", "x"))
			d.Limit.UnitMultiplier = wrapperspb.UInt32(n)
			return d
		}
		time.Sleep(42 * time.Second)
		r := ask(t, s, times(45))
		assert.Equal(t, isOK, r.OverallCode)
		assert.EqualValues(t, 45, r.Statuses[0].CurrentLimit.UnitMultiplier.Value)
		assert.Equal(t, 3*time.Second, r.Statuses[0].DurationUntilReset.AsDuration())
		assert.Equal(t, isOK, ask(t, s, times(20)).OverallCode, "another length, another counter")
		time.Sleep(2 * time.Second)
		assert.Equal(t, isOver, ask(t, s, times(45)).OverallCode)
		time.Sleep(time.Second)
		assert.Equal(t, isOK, ask(t, s, times(45)).OverallCode)
		time.Sleep(44 * time.Second) // the minute has ended, but not the 45 s
		assert.Equal(t, isOver, ask(t, s, times(45)).OverallCode)
		assert.Nil(t, ask(t, s, times(math.MaxUint32)).Statuses[0].CurrentLimit, "more than a year: no rule applies")
		assert.Equal(t, isOK, ask(t, s, times(0)).OverallCode)
	})
}

func TestOverride_CountRejected(t *testing.T) {
	s := newService(t, &ServiceOptions{OverridesCountRejected: true})
	d := func(n uint64) *common.RateLimitDescriptor {
		return withHits(n, overriding(2, typev3.RateLimitUnit_YEAR, describe("o", "x")))
	}
	assert.Equal(t, isOK, ask(t, s, d(2)).OverallCode)
	assert.Equal(t, isOK, ask(t, s, d(0)).OverallCode)
	assert.Equal(t, isOver, ask(t, s, d(1)).OverallCode)
	assert.Equal(t, isOver, ask(t, s, d(0)).OverallCode)
}

// brokenCounters fail as told.
type brokenCounters struct{ fail func() error }

func (b brokenCounters) count(context.Context, timeSpan, string, int64) (int64, error) {
	return 0, b.fail()
}

func TestWindow_CountersFail(t *testing.T) {
	for name, fail := range map[string]func() error{
		"error": func() error { return errors.New("away") },
		"panic": func() error { panic("away") },
	} {
		t.Run(name, func(t *testing.T) {
			for _, open := range []bool{false, true} {
				want := map[bool]codeList{false: {isOver, isOver, isOver, isOK, isOK}, true: {isOK, isOK, isOK, isOK, isOK}}[open]
				s := newService(t, &ServiceOptions{Counters: &Counters{hits: brokenCounters{fail}, shared: true}, CountersFailOpen: open},
					Descriptor{Key: "k", Limit: windowOf(5, Year)},
					Descriptor{Key: "shadow", Limit: &Limit{Window: &Window{5, Year}, Shadow: true}},
					Descriptor{Key: "open", Limit: &Limit{Window: &Window{5, Year}, FailOpen: true}},
				)
				r := ask(t, s, describe("k", "v"), overriding(1, 1, describe("o", "")), describe("shadow", ""), describe("open", ""))
				assert.Equal(t, want, codesOf(r))
				if !open {
					assert.Equal(t, "1", headersOf(r)["retry-after"], "not the rest of the year")
				}
			}
		})
	}
}
