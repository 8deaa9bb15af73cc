package store_test

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/storetest"
)

func TestOptions_AllProblemsAreNamed(t *testing.T) {
	_, err := store.New(nil, nil)
	require.ErrorIs(t, err, weir.ErrInvalidOptions)
	_, err = store.New(storetest.NewMemory(), &store.Options{CallTimeout: -1, FailureThreshold: -1, ProbeInterval: -1, RefreshInterval: -1})
	require.ErrorIs(t, err, weir.ErrInvalidOptions)
	for _, field := range []string{"CallTimeout", "FailureThreshold", "ProbeInterval", "RefreshInterval"} {
		require.ErrorContains(t, err, field)
	}
	s := newStore(t, storetest.NewMemory(), store.Options{})
	bucket := bucketOf(10, 1, time.Second, 0)
	for want, how := range map[string]store.LimiterOptions{
		"Outage must be FailClosed, FailOpen or FallBackLocally, got OutagePolicy(9)": {Outage: 9},
		"LocalShare must be more than 0 and at most 1, got 0":                         {Outage: store.FallBackLocally},
		"LocalShare must be more than 0 and at most 1, got 1.5":                       {Outage: store.FallBackLocally, LocalShare: 1.5},
		"LocalShare must be more than 0 and at most 1, got NaN":                       {Outage: store.FallBackLocally, LocalShare: math.NaN()},
		"LocalShare must be 0 unless Outage is fall_back_locally, got 0.5":            {LocalShare: 0.5},
		"Block must be from 0 to 1073741824, got -1":                                  {Block: -1},
		"LeaseTTL must be 0 except for concurrency, got 1s":                           {LeaseTTL: time.Second},
	} {
		_, err := s.TokenBucket("b", bucket, &how)
		require.ErrorIs(t, err, weir.ErrInvalidOptions)
		require.ErrorContains(t, err, want)
	}
	for want, how := range map[string]store.LimiterOptions{
		"Block must be at most 1 for concurrency, got 2": {Block: 2},
		"CacheRejections must be false for concurrency":  {CacheRejections: true},
		"LeaseTTL must be 0 or at least 100ms, got 1ns":  {LeaseTTL: 1},
	} {
		_, err := s.Concurrency("c", limiter.ConcurrencyOptions{PermitLimit: 1}, &how)
		require.ErrorIs(t, err, weir.ErrInvalidOptions)
		require.ErrorContains(t, err, want)
	}
	wrong := map[string]limiter.TokenBucketOptions{
		"ReplenishmentPeriod": bucketOf(1, 1, 1500*time.Nanosecond, 0),
		"at most 100 years":   bucketOf(1, 1, 101*365*24*time.Hour, 0),
	}
	if tooMany := int64(1) << 51; tooMany <= math.MaxInt { // else an int has no room for it
		wrong["TokenLimit"] = bucketOf(int(tooMany), 1, time.Second, 0)
	}
	for want, o := range wrong {
		_, err := s.TokenBucket("b", o, nil)
		require.ErrorIs(t, err, weir.ErrInvalidOptions)
		require.ErrorContains(t, err, want)
	}
	for _, name := range []string{"", "a b", "a:b", "a{b}", "ä", strings.Repeat("x", 201), "a\x00"} {
		_, err := s.TokenBucket(name, bucket, nil)
		require.ErrorIs(t, err, weir.ErrInvalidOptions, "%q", name)
	}
}
