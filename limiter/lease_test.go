package limiter_test

import (
	"errors"
	"math"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/limiter/custom"
)

// metadataPair is one pair that Metadata yields.
type metadataPair struct {
	name  string
	value any
}

func metadataOf(l limiter.Lease) []metadataPair {
	var pairs []metadataPair
	for name, value := range l.Metadata() {
		pairs = append(pairs, metadataPair{name, value})
	}
	return pairs
}

func TestLease_ZeroValue(t *testing.T) {
	var l limiter.Lease
	require.False(t, l.Acquired())
	require.Zero(t, l.Permits())
	require.Empty(t, l.Reason())
	_, ok := l.RetryAfter()
	require.False(t, ok)
	require.Empty(t, metadataOf(l))
	l.Release()
	l.Refund()
	require.Equal(t, custom.Rejected(0, ""), l)
}

func TestGranted(t *testing.T) {
	var released int
	l := custom.Granted(3, func() { released++ })
	require.True(t, l.Acquired())
	require.Equal(t, 3, l.Permits())
	require.Empty(t, l.Reason())
	_, ok := l.RetryAfter()
	require.False(t, ok)
	require.Empty(t, metadataOf(l))

	copied := l
	l.Release()
	copied.Release()
	l.Release()
	require.Equal(t, 1, released)
	require.True(t, l.Acquired(), "what was granted stays granted")
	require.Equal(t, 3, l.Permits())
}

func TestGranted_WithoutRelease(t *testing.T) {
	for _, l := range []limiter.Lease{custom.Granted(2, nil), custom.GrantedRefundable(2, nil, nil)} {
		require.True(t, l.Acquired())
		require.Equal(t, 2, l.Permits())
		l.Release()
		l.Refund()
	}
	require.Zero(t, testing.AllocsPerRun(100, func() { custom.Granted(1, nil).Release() }))
}

func TestLease_ReleaseConcurrentSafe(t *testing.T) {
	for range 50 {
		var released, refunded atomic.Int32
		l := custom.GrantedRefundable(1, func() { released.Add(1) }, func() { refunded.Add(1) })
		named := limiter.ReasonKey.With(l, "a lease with metadata is another copy")
		var all sync.WaitGroup
		for _, settle := range []func(){l.Release, named.Release, l.Refund, named.Refund, l.Release, named.Release} {
			all.Go(settle)
		}
		all.Wait()
		require.EqualValues(t, 1, released.Load()+refunded.Load())
	}
}

func TestLease_Refund(t *testing.T) {
	var calls []string
	note := func(what string) func() { return func() { calls = append(calls, what) } }

	for name, test := range map[string]struct {
		lease limiter.Lease
		use   func(limiter.Lease)
		want  []string
	}{
		"refund":           {custom.GrantedRefundable(1, note("release"), note("refund")), limiter.Lease.Refund, []string{"refund"}},
		"release releases": {custom.GrantedRefundable(1, note("release"), note("refund")), limiter.Lease.Release, []string{"release"}},
		"refund releases without a refund function": {custom.GrantedRefundable(1, note("release"), nil), limiter.Lease.Refund, []string{"release"}},
		"Granted has no refund":                     {custom.Granted(1, note("release")), limiter.Lease.Refund, []string{"release"}},
		"release does nothing":                      {custom.GrantedRefundable(1, nil, note("refund")), limiter.Lease.Release, nil},
		"refund after release":                      {custom.GrantedRefundable(1, nil, note("refund")), func(l limiter.Lease) { l.Release(); l.Refund() }, nil},
		"release after refund":                      {custom.GrantedRefundable(1, note("release"), note("refund")), func(l limiter.Lease) { l.Refund(); l.Release() }, []string{"refund"}},
		"through metadata":                          {limiter.ReasonKey.With(custom.GrantedRefundable(1, nil, note("refund")), "x"), limiter.Lease.Refund, []string{"refund"}},
		"a rejected one":                            {custom.Rejected(time.Second, "no"), func(l limiter.Lease) { l.Refund(); l.Release() }, nil},
	} {
		calls = nil
		test.use(test.lease)
		require.Equal(t, test.want, calls, name)
	}
}

// A release that panics has been called, and is not called again.
func TestLease_ReleasePanics(t *testing.T) {
	l := custom.Granted(1, func() { panic("bug") })
	require.PanicsWithValue(t, "bug", l.Release)
	require.NotPanics(t, l.Release)
}

func TestRejected(t *testing.T) {
	l := custom.Rejected(time.Second, "too hot")
	require.False(t, l.Acquired())
	require.Zero(t, l.Permits())
	require.Equal(t, "too hot", l.Reason())
	after, ok := l.RetryAfter()
	require.True(t, ok)
	require.Equal(t, time.Second, after)
	require.Equal(t, []metadataPair{{"REASON_PHRASE", "too hot"}, {"RETRY_AFTER", time.Second}}, metadataOf(l))

	for _, unknown := range []time.Duration{0, -1, math.MinInt64} {
		l := custom.Rejected(unknown, "")
		_, ok := l.RetryAfter()
		require.False(t, ok)
		require.Empty(t, metadataOf(l))
	}
	after, ok = custom.Rejected(math.MaxInt64, "").RetryAfter()
	require.True(t, ok)
	require.Equal(t, time.Duration(math.MaxInt64), after)
	require.Zero(t, testing.AllocsPerRun(100, func() { custom.Rejected(time.Second, "").RetryAfter() }))
}

func TestLease_Copies(t *testing.T) {
	for _, l := range []limiter.Lease{
		{}, custom.Rejected(time.Second, "no"), custom.Granted(1, nil), custom.Granted(1, func() {}),
		limiter.ReasonKey.With(custom.Granted(1, func() {}), "x"),
	} {
		copied := l
		require.True(t, l == copied)
		l.Release()
		require.True(t, l == copied)
		require.Len(t, map[limiter.Lease]bool{l: true, copied: true}, 1)
	}
	a, b := custom.Granted(1, func() {}), custom.Granted(1, func() {})
	require.False(t, a == b)
	require.False(t, custom.Granted(1, nil) == custom.Granted(2, nil))
	require.False(t, custom.Rejected(1, "") == custom.Rejected(2, ""))
}

func TestMetadataKey_With(t *testing.T) {
	key := limiter.NewMetadataKey[int]("PLACE_IN_LINE")
	require.Equal(t, "PLACE_IN_LINE", key.Name())
	old := custom.Rejected(time.Second, "no")
	_, ok := key.From(old)
	require.False(t, ok, "absent")

	l := key.With(old, 7)
	v, ok := key.From(l)
	require.True(t, ok)
	require.Equal(t, 7, v)
	_, ok = key.From(old)
	require.False(t, ok)

	// Two that share what they were made from do not see each other's.
	other := key.With(old, 8)
	v, _ = key.From(l)
	require.Equal(t, 7, v)
	v, _ = key.From(other)
	require.Equal(t, 8, v)
	require.Equal(t, "no", l.Reason())
	after, _ := l.RetryAfter()
	require.Equal(t, time.Second, after)
}

// Two keys of the same name see each other's values if these are of their type; the nil of an interface type is.
func TestMetadataKey_FromOtherType(t *testing.T) {
	number, text, any1 := limiter.NewMetadataKey[int]("K"), limiter.NewMetadataKey[string]("K"), limiter.NewMetadataKey[any]("K")
	cause, pointer := limiter.NewMetadataKey[error]("K"), limiter.NewMetadataKey[*int]("K")
	from := func(l limiter.Lease) (known []bool) {
		_, n := number.From(l)
		_, s := text.From(l)
		_, a := any1.From(l)
		_, e := cause.From(l)
		_, p := pointer.From(l)
		return []bool{n, s, a, e, p}
	}
	one := number.With(limiter.Lease{}, 1)
	require.Equal(t, []bool{true, false, true, false, false}, from(one))
	require.Equal(t, []bool{false, true, true, false, false}, from(text.With(one, "shadowed")))
	require.Equal(t, []bool{false, false, true, true, false}, from(cause.With(limiter.Lease{}, nil)))
	require.Equal(t, []bool{false, false, true, false, true}, from(pointer.With(limiter.Lease{}, nil)))
	err, _ := cause.From(cause.With(limiter.Lease{}, errors.ErrUnsupported))
	require.ErrorIs(t, err, errors.ErrUnsupported)
}

func TestMetadataKey_ZeroValue(t *testing.T) {
	var key limiter.MetadataKey[int]
	require.Empty(t, key.Name())
	_, ok := key.From(custom.Rejected(time.Second, "no"))
	require.False(t, ok)
	l := key.With(limiter.Lease{}, 5)
	v, ok := key.From(l)
	require.True(t, ok)
	require.Equal(t, 5, v)
	require.Equal(t, []metadataPair{{"", 5}}, metadataOf(l))
}

func TestRetryAfterKey(t *testing.T) {
	d, ok := limiter.RetryAfterKey.From(custom.Rejected(time.Second, ""))
	require.True(t, ok, "what the limiter said itself")
	require.Equal(t, time.Second, d)

	later := limiter.RetryAfterKey.With(custom.Rejected(time.Second, ""), time.Minute)
	d, ok = later.RetryAfter()
	require.True(t, ok)
	require.Equal(t, time.Minute, d)
	require.Equal(t, []metadataPair{{"RETRY_AFTER", time.Minute}}, metadataOf(later))

	granted := custom.Granted(1, nil)
	_, ok = granted.RetryAfter()
	require.False(t, ok)
	d, ok = limiter.RetryAfterKey.With(granted, time.Hour).RetryAfter()
	require.True(t, ok, "added to a lease that was granted")
	require.Equal(t, time.Hour, d)

	// A key of that name that was made elsewhere.
	d, ok = limiter.NewMetadataKey[time.Duration]("RETRY_AFTER").From(custom.Rejected(time.Second, ""))
	require.True(t, ok)
	require.Equal(t, time.Second, d)
	_, ok = limiter.NewMetadataKey[int64]("RETRY_AFTER").From(custom.Rejected(time.Second, ""))
	require.False(t, ok)
	_, ok = limiter.NewMetadataKey[string]("RETRY_AFTER").With(custom.Rejected(time.Second, ""), "soon").RetryAfter()
	require.False(t, ok, "shadowed by another type")
}

func TestReasonKey(t *testing.T) {
	reason, ok := limiter.ReasonKey.From(custom.Rejected(0, "no"))
	require.True(t, ok)
	require.Equal(t, "no", reason)
	_, ok = limiter.ReasonKey.From(custom.Rejected(time.Second, ""))
	require.False(t, ok)
	require.Equal(t, "never", limiter.ReasonKey.With(custom.Rejected(0, "no"), "never").Reason())
}

func TestLease_Metadata(t *testing.T) {
	a, b := limiter.NewMetadataKey[int]("A"), limiter.NewMetadataKey[int]("B")
	l := a.With(b.With(a.With(custom.Rejected(time.Second, "no"), 1), 2), 3)
	require.Equal(t, []metadataPair{
		{"A", 3}, {"B", 2}, {"REASON_PHRASE", "no"}, {"RETRY_AFTER", time.Second},
	}, metadataOf(l))

	for stop := 1; stop <= 4; stop++ { // it can be left anywhere
		var seen int
		for range l.Metadata() {
			if seen++; seen == stop {
				break
			}
		}
		require.Equal(t, stop, seen)
	}
}

func TestLease_Quota(t *testing.T) {
	bucket := limiter.TokenBucketOptions{TokenLimit: 5, TokensPerPeriod: 1, ReplenishmentPeriod: time.Hour}
	fixed := limiter.FixedWindowOptions{PermitLimit: 5, Window: time.Hour}
	sliding := limiter.SlidingWindowOptions{PermitLimit: 5, Window: time.Hour, SegmentsPerWindow: 2}
	b, err := limiter.NewTokenBucket(bucket)
	require.NoError(t, err)
	f, err := limiter.NewFixedWindow(fixed)
	require.NoError(t, err)
	s, err := limiter.NewSlidingWindow(sliding)
	require.NoError(t, err)
	for l, want := range map[limiter.Limiter]limiter.Options{b: bucket, f: fixed, s: sliding} {
		lease, err := l.TryAcquire(t.Context(), 2)
		require.NoError(t, err)
		options, available, ok := lease.Quota()
		require.True(t, ok)
		require.Equal(t, want.Limits(), options)
		require.EqualValues(t, 3, available)
		lease.Refund()
		lease, err = l.TryAcquire(t.Context(), 4) // of a bucket with a state of its own
		require.NoError(t, err)
		_, available, ok = lease.Quota()
		require.True(t, ok)
		require.EqualValues(t, 1, available)
		rejected, err := l.TryAcquire(t.Context(), 2)
		require.NoError(t, err)
		_, _, ok = rejected.Quota()
		require.False(t, ok)
	}
	_, _, ok := custom.Granted(1, nil).Quota()
	require.False(t, ok)
}
