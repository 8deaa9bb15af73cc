package weirredis

import (
	"context"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/rate"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/backend"
	"github.com/weir-go/weir/tools/testserver"
)

// slowBucket gives nothing back while a test runs.
func slowBucket(permits int64) *backend.Definition {
	limits := rate.Schedule{Kind: rate.TokenBucket, Permits: permits, Period: 3_600_000_000, Refill: 1}
	return backend.NewDefinition("slow", limits, 1_700_000_000_000_000)
}

func ask(t testing.TB, b *Backend, d *backend.Definition, key string, requests ...backend.Request) *backend.Batch {
	t.Helper()
	batch := &backend.Batch{Definition: d, Key: key, Requests: requests}
	require.NoError(t, b.Decide(t.Context(), []*backend.Batch{batch}))
	return batch
}

func take(n int64) backend.Request { return backend.Request{Min: n, Max: n} }

func TestDecide_StateIsKeptUntilFull(t *testing.T) {
	b, client := shared(t)
	for _, kind := range []rate.Kind{rate.TokenBucket, rate.FixedWindow, rate.SlidingWindow} {
		d := slowBucket(10)
		d.Kind, d.Name = kind, kind.String()
		switch kind {
		case rate.FixedWindow:
			d.Refill = 0
		case rate.SlidingWindow:
			d.Refill, d.Segments = 0, 3
		}
		for _, requests := range [][]backend.Request{{take(3)}, {take(1), take(2)}} {
			batch := ask(t, b, d, "k", requests...)
			got := client.PExpireTime(t.Context(), b.names.state(d.Name, "k")).Val()
			require.Equal(t, d.FullAt(&batch.State)/1000+1, got.Milliseconds(), "%v", kind)
		}
		batch := ask(t, b, d, "k", take(1))
		batch = ask(t, b, d, "k", backend.Request{Op: backend.OpRefund, Max: 100, Receipt: d.Receipt(&batch.State)})
		require.Zero(t, batch.State.Missing)
		if kind == rate.SlidingWindow {
			require.Zero(t, client.Exists(t.Context(), b.names.state(d.Name, "k")).Val(), "a full state is not kept")
			continue
		}
		got := client.PExpireTime(t.Context(), b.names.state(d.Name, "k")).Val()
		require.Equal(t, d.FullAt(&batch.State)/1000+1, got.Milliseconds(), "%v: what was refunded is remembered", kind)
	}
}

func TestDecide_UnchangedIsNotWritten(t *testing.T) {
	b, client := shared(t)
	d := slowBucket(2)
	ask(t, b, d, "", take(2))
	key := b.names.state(d.Name, "")
	stored := client.Get(t.Context(), key).Val()
	require.LessOrEqual(t, len(stored), 44, "Redis keeps a string of up to 44 bytes with its key")
	for _, requests := range [][]backend.Request{{take(1)}, {take(0)}, {take(1), take(2)}, {{Op: backend.OpRefund, Max: 1}}, {}} {
		ask(t, b, d, "", requests...)
		require.Equal(t, stored, client.Get(t.Context(), key).Val(), "%+v", requests)
	}
	ask(t, b, d, "other", take(3))
	ask(t, b, d, "other", take(3), take(0))
	require.Zero(t, client.Exists(t.Context(), b.names.state(d.Name, "other")).Val())
}

func TestDecide_InvalidInput(t *testing.T) {
	b, client := shared(t)
	for name, change := range map[string]func(*backend.Definition){
		"kind":    func(d *backend.Definition) { d.Kind = rate.Concurrency },
		"no kind": func(d *backend.Definition) { d.Kind = 0 },
		"period":  func(d *backend.Definition) { d.Period = 0 },
		"permits": func(d *backend.Definition) { d.Permits = 1 << 60 },
		"refill":  func(d *backend.Definition) { d.Refill = -1 },
	} {
		d := slowBucket(2)
		change(d)
		require.ErrorContains(t, failure(t, b, takeOne(d, "")), "weirredis: decide: ", name)
	}
	require.Error(t, failure(t, b, &backend.Batch{}))
	require.NoError(t, b.Decide(t.Context(), nil))

	d := slowBucket(2)
	for _, junk := range []string{"", "junk", "a long text which is not a state of anything at all"} {
		require.NoError(t, client.Set(t.Context(), b.names.state(d.Name, ""), junk, 0).Err())
		require.Error(t, failure(t, b, takeOne(d, "")), junk)
	}
	require.NoError(t, client.Del(t.Context(), b.names.state(d.Name, "")).Err())
	require.NoError(t, client.LPush(t.Context(), b.names.state(d.Name, ""), "x").Err())
	require.ErrorContains(t, failure(t, b, takeOne(d, "")), "WRONGTYPE")

	for _, c := range []redis.UniversalClient{nil, (*redis.Client)(nil), (*redis.ClusterClient)(nil), (*redis.Ring)(nil)} {
		_, err := NewBackend(c, &BackendOptions{Prefix: "{x}"})
		require.ErrorIs(t, err, weir.ErrInvalidOptions)
		require.ErrorContains(t, err, "client must not be ")
		require.ErrorContains(t, err, "Prefix must have no braces")
	}
}

// failure returns what is wrong with all the batches, which is no error of the server.
func failure(t testing.TB, b *Backend, batches ...*backend.Batch) error {
	t.Helper()
	require.NoError(t, b.Decide(t.Context(), batches))
	for _, batch := range batches {
		require.Equal(t, backend.Failed, batch.Outcome)
	}
	return batches[0].Err
}

// What is wrong with one key, or with the server that has it, is nothing to the others.
func TestDecide_OneKeyFails(t *testing.T) {
	b, client := shared(t)
	d := slowBucket(2)
	require.NoError(t, client.LPush(t.Context(), b.names.state(d.Name, "bad"), "x").Err())
	require.NoError(t, client.LPush(t.Context(), b.names.leases(d.Name, "bad"), "x").Err())

	bad, good := takeOne(d, "bad"), takeOne(d, "good")
	require.NoError(t, b.Decide(t.Context(), []*backend.Batch{bad, good}))
	require.Equal(t, backend.Failed, bad.Outcome)
	require.ErrorContains(t, bad.Err, "WRONGTYPE")
	require.Equal(t, backend.Decided, good.Outcome)
	require.ErrorContains(t, failure(t, b, bad, bad), "WRONGTYPE")
	broken := takeOne(d, "broken")
	for _, junk := range []string{"", "junk", "a long text which is not a state of anything at all"} {
		require.NoError(t, client.Set(t.Context(), b.names.state(d.Name, "broken"), junk, 0).Err())
		require.NoError(t, b.Decide(t.Context(), []*backend.Batch{bad, broken, good}))
		require.Equal(t, []backend.Outcome{backend.Failed, backend.Failed, backend.Decided}, []backend.Outcome{bad.Outcome, broken.Outcome, good.Outcome}, junk)
	}

	requests := []*backend.LeaseRequest{
		{Definition: d, Key: "bad", ID: "1", Permits: 1, TTL: 1e6}, {Definition: d, Key: "good", ID: "2", Permits: 1, TTL: 1e6},
	}
	require.NoError(t, b.Acquire(t.Context(), requests))
	require.Equal(t, backend.Failed, requests[0].Outcome)
	require.ErrorContains(t, requests[0].Err, "WRONGTYPE")
	require.True(t, requests[1].OK)
	requests[1].Fence = 0
	require.NoError(t, b.Release(t.Context(), requests[1:]))
	require.True(t, requests[1].OK, "a lease whose fence is not known can be given back")
}

// What is wrong with one limiter's definition is nothing to the other limiters, and is not the store's.
func TestDefinitionError_StaysWithTheLimiter(t *testing.T) {
	b, client := shared(t)
	key := b.names.definition("bad")
	for name, spoil := range map[string]func() error{
		"something else": func() error { return client.LPush(t.Context(), key, "x").Err() },
		"too short":      func() error { return client.Set(t.Context(), key, "x", 0).Err() },
		"no JSON":        func() error { return client.Set(t.Context(), key, doubles(1)+"{", 0).Err() },
	} {
		t.Run(name, func(t *testing.T) {
			require.NoError(t, client.Del(t.Context(), key).Err())
			require.NoError(t, spoil())
			_, _, err := b.Load(t.Context(), "bad")
			require.ErrorIs(t, err, backend.ErrDefinition)
			if name != "no JSON" { // of which the version can be read
				d := slowBucket(2)
				d.Name = "bad"
				_, err = b.Define(t.Context(), 1, d)
				require.ErrorIs(t, err, backend.ErrDefinition)
			}

			s, err := store.New(b, nil)
			require.NoError(t, err)
			defer func() { require.NoError(t, s.Close()) }()
			limits := limiter.TokenBucketOptions{TokenLimit: 1 << 20, TokensPerPeriod: 1, ReplenishmentPeriod: time.Hour}
			bad, err := s.TokenBucket("bad", limits, nil)
			require.NoError(t, err)
			good, err := s.TokenBucket("good", limits, nil)
			require.NoError(t, err)
			for range 5 {
				lease, err := bad.TryAcquire(t.Context(), 1)
				require.NoError(t, err)
				cause, _ := store.OutageKey.From(lease)
				require.ErrorIs(t, cause, backend.ErrDefinition)
			}
			require.NoError(t, s.Health().Err)
			lease, err := good.TryAcquire(t.Context(), 1)
			require.NoError(t, err)
			require.True(t, lease.Acquired())
		})
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	_, _, err := b.Load(ended, "good")
	require.NotErrorIs(t, err, backend.ErrDefinition)
	d := slowBucket(2)
	d.Version = 0
	_, err = b.Define(t.Context(), 0, d)
	require.ErrorIs(t, err, backend.ErrDefinition)
}

// A decision whose answer did not come may have been made: go-redis must not send it again.
func TestDecide_IsSentOnce(t *testing.T) {
	server := testserver.NewRedis(t)
	o, err := redis.ParseURL(server.URL)
	require.NoError(t, err)
	o.ReadTimeout, o.MaxRetries = 100*time.Millisecond, 5 // only the decision whose answer does not come has this timeout
	o.MinRetryBackoff = -1
	d := slowBucket(100)
	for name, batches := range map[string][]*backend.Batch{
		"one":  {takeOne(d, "a")},
		"many": {takeOne(d, "a"), takeOne(d, "b")},
	} {
		hasty, prefix := redis.NewClient(o), freshPrefix()
		patient, err := NewBackend(connect(t, server.URL), &BackendOptions{Prefix: prefix})
		require.NoError(t, err)
		ask(t, patient, d, "a", take(1))
		b, err := NewBackend(hasty, &BackendOptions{Prefix: prefix})
		require.NoError(t, err)
		connected := func() bool { return hasty.Ping(t.Context()).Err() == nil }
		require.Eventually(t, connected, time.Minute, time.Millisecond)
		server.Pause()
		require.Error(t, b.Decide(context.Background(), batches), name)
		server.Resume()
		missing := func() int64 { return ask(t, patient, d, "a", take(0)).State.Missing }
		require.Eventually(t, func() bool { return missing() >= 2 }, time.Minute, time.Millisecond, name)
		require.EqualValues(t, 2, missing(), name)
		require.NoError(t, hasty.Close())
	}
}

func TestDecide_ServerErrors(t *testing.T) {
	client := connect(t, testserver.NewRedis(t).URL)
	b := newTestBackend(t, client)
	d := slowBucket(100)
	ask(t, b, d, "", take(1))

	require.NoError(t, client.ConfigSet(t.Context(), "maxmemory", "1").Err())
	err := b.Decide(t.Context(), []*backend.Batch{takeOne(d, "")})
	require.ErrorContains(t, err, "weirredis: decide: OOM ")
	require.NoError(t, client.ConfigSet(t.Context(), "maxmemory", "0").Err())

	require.NoError(t, client.ReplicaOf(t.Context(), "127.0.0.1", "1").Err())
	err = b.Decide(t.Context(), []*backend.Batch{takeOne(d, "")})
	require.ErrorContains(t, err, "weirredis: decide: READONLY ")
	err = b.Decide(t.Context(), []*backend.Batch{takeOne(d, ""), takeOne(d, "k")})
	require.ErrorContains(t, err, "weirredis: decide: READONLY ")
	require.NoError(t, client.ReplicaOf(t.Context(), "NO", "ONE").Err())
	require.EqualValues(t, 2, ask(t, b, d, "", take(1)).State.Missing)

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, b.Decide(ctx, []*backend.Batch{takeOne(d, "")}), context.Canceled)
}

func TestDecide_LostScripts(t *testing.T) {
	server := testserver.NewRedis(t)
	client := connect(t, server.URL)
	b := newTestBackend(t, client)
	d := slowBucket(100)
	flush := func() { require.NoError(t, client.ScriptFlush(t.Context()).Err()) }

	ask(t, b, d, "k", take(1))
	flush()
	require.EqualValues(t, 2, ask(t, b, d, "k", take(1)).State.Missing)

	// One of two scripts is known: what it has decided is not asked again.
	flush()
	ask(t, b, d, "k", take(1))
	batches := make([]*backend.Batch, 10)
	for i := range batches {
		batches[i] = takeOne(d, "k"+strconv.Itoa(i))
		if i%2 == 1 {
			batches[i].Requests = []backend.Request{take(2), take(3)}
		}
	}
	require.NoError(t, b.Decide(t.Context(), batches))
	for i, batch := range batches {
		require.Equal(t, backend.Decided, batch.Outcome)
		require.Equal(t, []int64{1, 5}[i%2], ask(t, b, d, batch.Key, take(0)).State.Missing)
	}

	require.NoError(t, server.Restart(true))
	require.Eventually(t, func() bool {
		return b.Decide(t.Context(), []*backend.Batch{takeOne(d, "k")}) == nil
	}, 10*time.Second, 10*time.Millisecond)
	require.EqualValues(t, 1, ask(t, b, d, "k", take(0)).State.Missing, "it is empty")
}

func TestDecide_Allocations(t *testing.T) {
	b, client := shared(t)
	d := slowBucket(1 << 40)
	sha := client.ScriptLoad(t.Context(), "return 'a string, as long as a state'").Val()
	floor := testing.AllocsPerRun(200, func() {
		cmd := redis.NewStringCmd(t.Context(), "evalsha", sha, "1", "k", "argument")
		_ = client.Process(t.Context(), cmd)
	})
	batches := []*backend.Batch{takeOne(d, "")}
	allocs := testing.AllocsPerRun(200, func() { _ = b.Decide(t.Context(), batches) })
	require.LessOrEqual(t, allocs, floor+1, "what any script costs is %v", floor)

	batches[0].Key = "a key"
	allocs = testing.AllocsPerRun(200, func() { _ = b.Decide(t.Context(), batches) })
	require.LessOrEqual(t, allocs, floor+3, "what any script costs is %v; the key is made, and put into an interface", floor)
}
