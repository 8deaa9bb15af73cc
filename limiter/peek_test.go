package limiter

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
)

var (
	_ Peeker                    = (*TokenBucket)(nil)
	_ Peeker                    = (*FixedWindow)(nil)
	_ Peeker                    = (*SlidingWindow)(nil)
	_ Peeker                    = (*Concurrency)(nil)
	_ Peeker                    = (*unlimited)(nil)
	_ Peeker                    = (*Chained)(nil)
	_ PartitionedPeeker[int]    = (*PartitionedLimiter[int, string])(nil)
	_ PartitionedPeeker[string] = (*translated[string, int])(nil)
)

// mustPeek expects a decision.
func mustPeek(tb testing.TB, p Peeker, n int) Lease {
	tb.Helper()
	l, err := p.Peek(tb.Context(), n)
	require.NoError(tb, err)
	return l
}

func retryAfterOf(l Lease) time.Duration {
	d, _ := l.RetryAfter()
	return d
}

// The grid of a key's bucket begins with its first call, and Peek is none.
func TestPeek_DoesNotBeginAGrid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := weir.Must(FactoryFor[string](onePermit)("key")).(*TokenBucket)
		assert.True(t, mustPeek(t, l, 1).Acquired())
		_, err := l.Peek(t.Context(), 2)
		require.ErrorIs(t, err, ErrPermitCount)
		time.Sleep(20 * time.Minute)
		assert.True(t, mustPeek(t, l, 1).Acquired())
		lease, err := l.TryAcquire(t.Context(), 1)
		require.NoError(t, err)
		require.True(t, lease.Acquired())
		assert.Equal(t, time.Hour, retryAfterOf(mustPeek(t, l, 1)))
	})
}

func TestPeek_ZeroValues(t *testing.T) {
	for _, l := range []Peeker{&TokenBucket{}, &FixedWindow{}, &SlidingWindow{}, &Concurrency{}} {
		for _, n := range []int{-1, 0, 1} {
			_, err := l.Peek(t.Context(), n)
			assert.ErrorIs(t, err, ErrPermitCount, "%T %d", l, n)
		}
	}
	assert.True(t, mustPeek(t, &Chained{}, 1).Acquired())
}

// A context's method can panic: the limiter must not stay locked.
func TestPeek_ContextPanics(t *testing.T) {
	b := weir.Must(NewTokenBucket(onePermit))
	assert.Panics(t, func() { _, _ = b.Peek(panickingContext{t.Context()}, 1) })
	assert.True(t, mustPeek(t, b, 1).Acquired())
}

type panickingContext struct{ context.Context }

func (panickingContext) Err() error { panic("boom") }

func TestPeek_Allocations(t *testing.T) {
	p := newPartitioned(t, FactoryFor[string](onePermit), PartitionedOptions{})
	mustAcquire(t, p, "key", 1)
	assertAllocs(t, 0, func() {
		if l, err := p.Peek(t.Context(), "key", 1); err != nil || l.Acquired() {
			t.Fatal("not rejected")
		}
	})
}

func TestChain_Peek(t *testing.T) {
	ctx := t.Context()
	seats := weir.Must(NewConcurrency(ConcurrencyOptions{PermitLimit: 2}))
	rate := weir.Must(NewTokenBucket(onePermit))
	c := weir.Must(Chain(seats, weir.Must(Chain(rate, NewUnlimited()))))
	assert.Equal(t, 1, mustPeek(t, c, 1).Permits())
	assert.EqualValues(t, 0, c.Statistics().SuccessfulLeases)
	lease := weir.Must(c.TryAcquire(ctx, 1))
	require.True(t, lease.Acquired())
	l := mustPeek(t, c, 1)
	assert.False(t, l.Acquired())
	assert.InDelta(t, time.Hour, retryAfterOf(l), float64(time.Minute), "a seat is free, so the bucket decides")
	assert.EqualValues(t, 1, seats.Statistics().AvailablePermits)
	weir.Must(seats.TryAcquire(ctx, 1))
	assert.Zero(t, retryAfterOf(mustPeek(t, c, 1)), "the seats decide")

	_, err := c.Peek(ctx, 2)
	assert.NoError(t, err, "the seats reject before the bucket is asked for more than it could ever grant")
	lease.Release()
	_, err = weir.Must(Chain(seats, rate)).Peek(ctx, 2)
	assert.NoError(t, err)
	_, err = weir.Must(Chain(rate)).Peek(ctx, 2)
	assert.ErrorIs(t, err, ErrPermitCount)
	assert.ErrorContains(t, err, "limiter 0 (")
	ended, cancel := context.WithCancel(ctx)
	cancel()
	_, err = c.Peek(ended, 1)
	assert.ErrorIs(t, err, context.Canceled)
	_, err = weir.Must(Chain(NewUnlimited(), plain{NewUnlimited()})).Peek(ctx, 1)
	assert.ErrorIs(t, err, errors.ErrUnsupported)
	assert.EqualError(t, err, "limiter 1 (limiter.plain) of the chain: limiter: a limiter.plain has no Peek: unsupported operation")
	assert.NoError(t, c.Close())
	_, err = c.Peek(ctx, 1)
	assert.ErrorIs(t, err, ErrClosed)
}

// noted is a limiter whose leases have metadata.
type noted struct {
	*unlimited
	key   MetadataKey[string]
	value string
}

func (n noted) Peek(ctx context.Context, permits int) (Lease, error) {
	l, err := n.unlimited.Peek(ctx, permits)
	return n.key.With(l, n.value), err
}

func TestChain_PeekMetadata(t *testing.T) {
	where, who := NewMetadataKey[string]("where"), NewMetadataKey[string]("who")
	c := weir.Must(Chain(noted{new(unlimited), where, "first"}, noted{new(unlimited), where, "second"}, noted{new(unlimited), who, "third"}))
	l := mustPeek(t, c, 3)
	for key, want := range map[MetadataKey[string]]string{where: "first", who: "third"} {
		got, ok := key.From(l)
		assert.True(t, ok)
		assert.Equal(t, want, got)
	}
	assert.Equal(t, 3, l.Permits())
}

// A limiter that is made to be looked at is closed.
func TestPartitioned_PeekAtNewKey(t *testing.T) {
	closed := 0
	p := newPartitioned(t, closes(func(int) { closed++ }), PartitionedOptions{})
	for n := range 2 {
		l, err := p.Peek(t.Context(), 7, n)
		require.NoError(t, err)
		assert.True(t, l.Acquired())
	}
	_, err := p.Peek(t.Context(), 7, 2)
	require.ErrorIs(t, err, ErrPermitCount)
	assert.Equal(t, 3, closed)
	assert.Zero(t, p.Len())

	other := newPartitioned(t, func(int) (Limiter, error) { return plain{NewUnlimited()}, nil }, PartitionedOptions{})
	_, err = other.Peek(t.Context(), 7, 1)
	require.ErrorIs(t, err, errors.ErrUnsupported)
	mustAcquire(t, other, 7, 1)
	_, err = other.Peek(t.Context(), 7, 1)
	require.ErrorIs(t, err, errors.ErrUnsupported)
}

// Of all kinds of limiters by key: answers, partitions and statistics are as if Peek had not been called.
func TestPartitioned_PeekChangesNothing(t *testing.T) {
	o := PartitionedOptions{IdleTimeout: time.Minute, MaxPartitions: 5} // Peek does not look for room
	for name, f := range map[string]Factory[string]{
		"TokenBucket":   FactoryFor[string](TokenBucketOptions{TokenLimit: 3, TokensPerPeriod: 1, ReplenishmentPeriod: 7 * time.Second, QueueLimit: 2}),
		"FixedWindow":   FactoryFor[string](FixedWindowOptions{PermitLimit: 3, Window: 10 * time.Second}),
		"SlidingWindow": FactoryFor[string](SlidingWindowOptions{PermitLimit: 3, Window: 12 * time.Second, SegmentsPerWindow: 4}),
		"Concurrency":   FactoryFor[string](ConcurrencyOptions{PermitLimit: 3, QueueLimit: 1}),
		"Unlimited":     unlimitedEach[string],
		"chain": func(string) (Limiter, error) {
			return Chain(weir.Must(NewConcurrency(ConcurrencyOptions{PermitLimit: 2})), weir.Must(NewTokenBucket(onePermit)))
		},
	} {
		t.Run(name, func(t *testing.T) {
			seeds := uint64(20)
			if testing.Short() {
				seeds = 5
			}
			for seed := range seeds {
				synctest.Test(t, func(t *testing.T) {
					with, without := newPartitioned(t, f, o), newPartitioned(t, f, o)
					with.keys.seed = without.keys.seed // the order in which partitions make room
					comparePeeked(t, rand.New(rand.NewPCG(seed, 1)), with, without)
				})
			}
		})
	}
}

// comparePeeked calls both limiters alike at random, and also Peek of the first one.
func comparePeeked(t *testing.T, r *rand.Rand, with, without *PartitionedLimiter[string, string]) {
	t.Helper()
	var trace strings.Builder
	var leases [2][]Lease
	for range 300 {
		key, n := fmt.Sprint("key ", r.IntN(8)), r.IntN(5)-r.IntN(2)*r.IntN(2)
		fmt.Fprintln(&trace, key, n)
		peeked, peekErr := with.Peek(t.Context(), key, n)
		byKey, byKeyErr := with.PeekKey(t.Context(), key, n)
		require.Equal(t, peeked, byKey, &trace)
		require.Equal(t, fmt.Sprint(peekErr), fmt.Sprint(byKeyErr), &trace)
		peeked.Release()
		var answers [2]string
		for i, p := range []*PartitionedLimiter[string, string]{with, without} {
			l, err := p.TryAcquire(t.Context(), key, n)
			answers[i] = fmt.Sprint(l, err)
			if l.Acquired() {
				leases[i] = append(leases[i], l)
			}
		}
		require.Equal(t, answers[1], answers[0], &trace)
		if !strings.Contains(answers[1], ReasonPartitionLimit) {
			require.Equal(t, answers[1], fmt.Sprint(peeked, peekErr), "Peek\n%s", &trace)
		}
		require.Equal(t, weir.Must(without.Statistics(key)), weir.Must(with.Statistics(key)), &trace)
		if held := len(leases[0]); held > 0 && r.IntN(2) == 0 {
			i := r.IntN(held)
			leases[0][i].Release()
			leases[1][i].Release()
		}
		if r.IntN(4) == 0 {
			time.Sleep(time.Duration(r.Int64N(int64(20 * time.Second))))
			synctest.Wait()
		}
		require.Equal(t, without.Len(), with.Len(), &trace)
	}
}

// Peeking at a key does not keep its partition from being forgotten.
func TestPartitioned_PeekIsNoUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPartitioned(t, FactoryFor[string](ConcurrencyOptions{PermitLimit: 1}), PartitionedOptions{IdleTimeout: time.Minute})
		mustAcquire(t, p, "key", 1).Release()
		for range 95 {
			time.Sleep(time.Second)
			_, err := p.Peek(t.Context(), "key", 1)
			require.NoError(t, err)
			_, err = p.PeekKey(t.Context(), "other", 1)
			require.NoError(t, err)
		}
		assert.Zero(t, p.Len())
	})
}

func TestPartitioned_PeekKey(t *testing.T) {
	ctx := t.Context()
	f := FactoryFor[string](onePermit)
	name := func(n int) string { return fmt.Sprint("user ", n) }
	byResource := weir.Must(NewPartitioned(func(n int) Partition[string] { return Partition[string]{Key: name(n), New: f} }, nil))
	defer byResource.Close()
	_, err := byResource.PeekKey(ctx, "user 1", 1)
	require.ErrorIs(t, err, errors.ErrUnsupported)
	assert.ErrorContains(t, err, "PeekKey does not know it")
	l, err := byResource.Peek(ctx, 1, 1)
	require.NoError(t, err)
	assert.True(t, l.Acquired())
	mustAcquire(t, byResource, 1, 1)
	l, err = byResource.PeekKey(ctx, "user 1", 1)
	require.NoError(t, err)
	assert.False(t, l.Acquired())

	byKey := weir.Must(NewPartitionedByKey(name, f, nil))
	defer byKey.Close()
	l, err = byKey.PeekKey(ctx, "user 1", 1)
	require.NoError(t, err)
	assert.True(t, l.Acquired())
	_, err = byKey.PeekKey(ctx, "user 1", 2)
	require.ErrorIs(t, err, ErrPermitCount)
	mustAcquire(t, byKey, 1, 1)
	l, err = byKey.PeekKey(ctx, "user 1", 1)
	require.NoError(t, err)
	assert.False(t, l.Acquired())

	lower := weir.Must(NewPartitioned(func(s string) Partition[string] { return Partition[string]{Key: strings.ToLower(s), New: f} }, nil))
	defer lower.Close()
	l, err = lower.PeekKey(ctx, "ann", 1)
	require.NoError(t, err)
	assert.True(t, l.Acquired(), "a resource that is its own key")
	_, err = lower.PeekKey(ctx, "Ann", 1)
	require.ErrorIs(t, err, errors.ErrUnsupported, "no resource has that key")
	assert.Zero(t, lower.Len())
}

func TestNewPartitionedByKey_Options(t *testing.T) {
	_, err := NewPartitionedByKey[int, string](nil, nil, &PartitionedOptions{MaxPartitions: -2})
	require.ErrorIs(t, err, ErrInvalidOptions)
	for _, field := range []string{"key", "each", "MaxPartitions"} {
		assert.ErrorContains(t, err, field)
	}
}

func TestPartitioned_PeekErrors(t *testing.T) {
	ctx := t.Context()
	boom := errors.New("boom")
	p := weir.Must(NewPartitioned(func(key float64) Partition[float64] {
		switch key {
		case 1:
			return Partition[float64]{Key: key}
		case 2:
			return Partition[float64]{Key: key, New: func(float64) (Limiter, error) { return nil, boom }}
		}
		return Partition[float64]{Key: key, New: unlimitedEach[float64]}
	}, nil))
	_, err := p.Peek(ctx, 1, 1)
	assert.ErrorIs(t, err, ErrInvalidOptions)
	_, err = p.Peek(ctx, 2, 1)
	assert.ErrorIs(t, err, boom)
	_, err = p.Peek(ctx, math.NaN(), 1)
	assert.ErrorIs(t, err, ErrInvalidOptions)
	_, err = p.Peek(ctx, 3, -1)
	assert.ErrorIs(t, err, ErrPermitCount)
	ended, cancel := context.WithCancel(ctx)
	cancel()
	_, err = p.Peek(ended, 3, 1)
	assert.ErrorIs(t, err, context.Canceled)
	assert.Zero(t, p.Len())
	assert.NoError(t, p.Close())
	_, err = p.Peek(ctx, 3, 1)
	assert.ErrorIs(t, err, ErrClosed)
	_, err = p.PeekKey(ctx, 3, 1)
	assert.ErrorIs(t, err, ErrClosed)
}

// While Apply runs, Peek sees what it changes.
func TestPartitioned_PeekDuringApply(t *testing.T) {
	p := newPartitioned(t, FactoryFor[string](onePermit), PartitionedOptions{})
	for _, key := range []string{"a", "b"} {
		mustAcquire(t, p, key, 1)
	}
	raised := onePermit
	raised.TokenLimit = 2
	first := true
	err := p.Apply(func(key string, l Limiter) error {
		if first {
			first = false
			other := map[string]string{"a": "b", "b": "a"}[key]
			lease, err := p.Peek(t.Context(), other, 1)
			assert.NoError(t, err)
			assert.True(t, lease.Acquired())
		}
		return l.(*TokenBucket).Reconfigure(raised)
	})
	require.NoError(t, err)
}

func TestPartitioned_PeekOfChainsAndTranslations(t *testing.T) {
	ctx := t.Context()
	p := newPartitioned(t, FactoryFor[string](onePermit), PartitionedOptions{})
	all := weir.Must(ChainPartitioned[string](newPartitioned(t, unlimitedEach[string], PartitionedOptions{}), p))
	ints := Translate(all, func(n int) string { return fmt.Sprint(n) }).(PartitionedPeeker[int])
	l, err := ints.Peek(ctx, 7, 1)
	require.NoError(t, err)
	assert.True(t, l.Acquired())
	assert.Zero(t, p.Len())
	mustAcquire(t, p, "7", 1)
	l, err = ints.Peek(ctx, 7, 1)
	require.NoError(t, err)
	assert.False(t, l.Acquired())
	_, err = ints.Peek(ctx, 7, -1)
	assert.ErrorIs(t, err, ErrPermitCount)

	type noPeek struct{ Partitioned[string] }
	_, err = Translate(Partitioned[string](noPeek{p}), func(n int) string { return "" }).(PartitionedPeeker[int]).Peek(ctx, 7, 1)
	assert.ErrorIs(t, err, errors.ErrUnsupported)
}

// unlimitedEach makes an unlimited limiter for each key.
func unlimitedEach[K comparable](K) (Limiter, error) { return NewUnlimited(), nil }
