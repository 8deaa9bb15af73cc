package limiter

import (
	"errors"
	"math"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// metadataPair is one pair that Metadata yields.
type metadataPair struct {
	name  string
	value any
}

func metadataOf(l Lease) []metadataPair {
	var pairs []metadataPair
	for name, value := range l.Metadata() {
		pairs = append(pairs, metadataPair{name, value})
	}
	return pairs
}

func TestLease_ZeroValue(t *testing.T) {
	var l Lease
	require.False(t, l.Acquired())
	require.Zero(t, l.Permits())
	require.Empty(t, l.Reason())
	_, ok := l.RetryAfter()
	require.False(t, ok)
	require.Empty(t, metadataOf(l))
	l.Release()
	l.Refund()
	require.Equal(t, Rejected(0, ""), l)
}

func TestGranted(t *testing.T) {
	var released int
	l := Granted(3, func() { released++ })
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
	for _, l := range []Lease{Granted(2, nil), GrantedRefundable(2, nil, nil)} {
		require.True(t, l.Acquired())
		require.Equal(t, 2, l.Permits())
		l.Release()
		l.Refund()
	}
	require.Zero(t, testing.AllocsPerRun(100, func() { Granted(1, nil).Release() }))
}

func TestGranted_NoPermits(t *testing.T) {
	for _, n := range []int{0, -1, math.MinInt} {
		l := Granted(n, nil)
		require.True(t, l.Acquired())
		require.Zero(t, l.Permits())
	}
}

func TestLease_ReleaseConcurrentSafe(t *testing.T) {
	for range 50 {
		var released, refunded atomic.Int32
		l := GrantedRefundable(1, func() { released.Add(1) }, func() { refunded.Add(1) })
		named := ReasonKey.With(l, "a lease with metadata is another copy")
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
		lease Lease
		use   func(Lease)
		want  []string
	}{
		"refund":           {GrantedRefundable(1, note("release"), note("refund")), Lease.Refund, []string{"refund"}},
		"release releases": {GrantedRefundable(1, note("release"), note("refund")), Lease.Release, []string{"release"}},
		"refund releases without a refund function": {GrantedRefundable(1, note("release"), nil), Lease.Refund, []string{"release"}},
		"Granted has no refund":                     {Granted(1, note("release")), Lease.Refund, []string{"release"}},
		"release does nothing":                      {GrantedRefundable(1, nil, note("refund")), Lease.Release, nil},
		"refund after release":                      {GrantedRefundable(1, nil, note("refund")), func(l Lease) { l.Release(); l.Refund() }, nil},
		"release after refund":                      {GrantedRefundable(1, note("release"), note("refund")), func(l Lease) { l.Refund(); l.Release() }, []string{"refund"}},
		"through metadata":                          {ReasonKey.With(GrantedRefundable(1, nil, note("refund")), "x"), Lease.Refund, []string{"refund"}},
		"a rejected one":                            {Rejected(time.Second, "no"), func(l Lease) { l.Refund(); l.Release() }, nil},
	} {
		calls = nil
		test.use(test.lease)
		require.Equal(t, test.want, calls, name)
	}
}

// A release that panics has been called, and is not called again.
func TestLease_ReleasePanics(t *testing.T) {
	l := Granted(1, func() { panic("bug") })
	require.PanicsWithValue(t, "bug", l.Release)
	require.NotPanics(t, l.Release)
}

func TestRejected(t *testing.T) {
	l := Rejected(time.Second, "too hot")
	require.False(t, l.Acquired())
	require.Zero(t, l.Permits())
	require.Equal(t, "too hot", l.Reason())
	after, ok := l.RetryAfter()
	require.True(t, ok)
	require.Equal(t, time.Second, after)
	require.Equal(t, []metadataPair{{"REASON_PHRASE", "too hot"}, {"RETRY_AFTER", time.Second}}, metadataOf(l))

	for _, unknown := range []time.Duration{0, -1, math.MinInt64} {
		l := Rejected(unknown, "")
		_, ok := l.RetryAfter()
		require.False(t, ok)
		require.Empty(t, metadataOf(l))
	}
	after, ok = Rejected(math.MaxInt64, "").RetryAfter()
	require.True(t, ok)
	require.Equal(t, time.Duration(math.MaxInt64), after)
	require.Zero(t, testing.AllocsPerRun(100, func() { Rejected(time.Second, "").RetryAfter() }))
}

func TestLease_Copies(t *testing.T) {
	for _, l := range []Lease{
		{}, Rejected(time.Second, "no"), Granted(1, nil), Granted(1, func() {}),
		ReasonKey.With(Granted(1, func() {}), "x"),
	} {
		copied := l
		require.True(t, l == copied)
		l.Release()
		require.True(t, l == copied)
		require.Len(t, map[Lease]bool{l: true, copied: true}, 1)
	}
	a, b := Granted(1, func() {}), Granted(1, func() {})
	require.False(t, a == b)
	require.False(t, Granted(1, nil) == Granted(2, nil))
	require.False(t, Rejected(1, "") == Rejected(2, ""))
}

func TestMetadataKey_With(t *testing.T) {
	key := NewMetadataKey[int]("PLACE_IN_LINE")
	require.Equal(t, "PLACE_IN_LINE", key.Name())
	old := Rejected(time.Second, "no")
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

func TestMetadataKey_WithHoldsSamePermits(t *testing.T) {
	var released int
	l := Granted(2, func() { released++ })
	with := NewMetadataKey[string]("NODE").With(l, "eu-1")
	require.True(t, with.Acquired())
	require.Equal(t, 2, with.Permits())
	with.Release()
	l.Release()
	require.Equal(t, 1, released)
}

func TestMetadataKey_FromOtherType(t *testing.T) {
	number, text := NewMetadataKey[int]("K"), NewMetadataKey[string]("K")
	l := number.With(Lease{}, 1)
	v, ok := text.From(l)
	require.False(t, ok)
	require.Empty(t, v)
	n, ok := NewMetadataKey[int]("K").From(l)
	require.True(t, ok, "the same name and type is the same key")
	require.Equal(t, 1, n)

	l = text.With(l, "one")
	_, ok = number.From(l)
	require.False(t, ok, "shadowed")
	_, ok = NewMetadataKey[int64]("K").From(number.With(Lease{}, 1))
	require.False(t, ok)
	_, ok = NewMetadataKey[any]("K").From(l)
	require.True(t, ok, "every value is of type any")
}

func TestMetadataKey_Nils(t *testing.T) {
	cause := NewMetadataKey[error]("CAUSE")
	err, ok := cause.From(cause.With(Lease{}, nil))
	require.True(t, ok)
	require.NoError(t, err)
	err, ok = cause.From(cause.With(Lease{}, errors.ErrUnsupported))
	require.True(t, ok)
	require.ErrorIs(t, err, errors.ErrUnsupported)

	pointer := NewMetadataKey[*int]("CAUSE")
	p, ok := pointer.From(pointer.With(Lease{}, nil))
	require.True(t, ok)
	require.Nil(t, p)
	_, ok = pointer.From(cause.With(Lease{}, nil))
	require.False(t, ok)
	_, ok = cause.From(pointer.With(Lease{}, nil))
	require.False(t, ok)
}

func TestMetadataKey_ZeroValue(t *testing.T) {
	var key MetadataKey[int]
	require.Empty(t, key.Name())
	_, ok := key.From(Rejected(time.Second, "no"))
	require.False(t, ok)
	l := key.With(Lease{}, 5)
	v, ok := key.From(l)
	require.True(t, ok)
	require.Equal(t, 5, v)
	require.Equal(t, []metadataPair{{"", 5}}, metadataOf(l))
}

func TestRetryAfterKey(t *testing.T) {
	d, ok := RetryAfterKey.From(Rejected(time.Second, ""))
	require.True(t, ok, "what the limiter said itself")
	require.Equal(t, time.Second, d)

	later := RetryAfterKey.With(Rejected(time.Second, ""), time.Minute)
	d, ok = later.RetryAfter()
	require.True(t, ok)
	require.Equal(t, time.Minute, d)
	require.Equal(t, []metadataPair{{"RETRY_AFTER", time.Minute}}, metadataOf(later))

	granted := Granted(1, nil)
	_, ok = granted.RetryAfter()
	require.False(t, ok)
	d, ok = RetryAfterKey.With(granted, time.Hour).RetryAfter()
	require.True(t, ok, "added to a lease that was granted")
	require.Equal(t, time.Hour, d)

	// A key of that name that was made elsewhere.
	d, ok = NewMetadataKey[time.Duration]("RETRY_AFTER").From(Rejected(time.Second, ""))
	require.True(t, ok)
	require.Equal(t, time.Second, d)
	_, ok = NewMetadataKey[int64]("RETRY_AFTER").From(Rejected(time.Second, ""))
	require.False(t, ok)
	_, ok = NewMetadataKey[string]("RETRY_AFTER").With(Rejected(time.Second, ""), "soon").RetryAfter()
	require.False(t, ok, "shadowed by another type")
}

func TestReasonKey(t *testing.T) {
	reason, ok := ReasonKey.From(Rejected(0, "no"))
	require.True(t, ok)
	require.Equal(t, "no", reason)
	_, ok = ReasonKey.From(Rejected(time.Second, ""))
	require.False(t, ok)
	require.Equal(t, "never", ReasonKey.With(Rejected(0, "no"), "never").Reason())
}

func TestLease_Metadata(t *testing.T) {
	a, b := NewMetadataKey[int]("A"), NewMetadataKey[int]("B")
	l := a.With(b.With(a.With(Rejected(time.Second, "no"), 1), 2), 3)
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
	bucket := TokenBucketOptions{TokenLimit: 5, TokensPerPeriod: 1, ReplenishmentPeriod: time.Hour}
	fixed := FixedWindowOptions{PermitLimit: 5, Window: time.Hour}
	sliding := SlidingWindowOptions{PermitLimit: 5, Window: time.Hour, SegmentsPerWindow: 2}
	b, err := NewTokenBucket(bucket)
	require.NoError(t, err)
	f, err := NewFixedWindow(fixed)
	require.NoError(t, err)
	s, err := NewSlidingWindow(sliding)
	require.NoError(t, err)
	for l, want := range map[Limiter]Options{b: bucket, f: fixed, s: sliding} {
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
	_, _, ok := Granted(1, nil).Quota()
	require.False(t, ok)
}
