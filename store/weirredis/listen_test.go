package weirredis

import (
	"context"
	"regexp"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/store/backend"
	"github.com/weir-go/weir/tools/testserver"
)

// listening is a Listen that runs.
type listening struct {
	notices chan backend.Notice
	ended   chan error
	cancel  context.CancelFunc
}

func listen(t *testing.T, b *Backend) *listening {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	l := &listening{make(chan backend.Notice, 100), make(chan error, 1), cancel}
	ready := make(chan struct{})
	go func() {
		l.ended <- b.Listen(ctx, func() { close(ready) }, func(n backend.Notice) { l.notices <- n })
	}()
	t.Cleanup(cancel)
	select {
	case <-ready:
	case err := <-l.ended:
		t.Fatal(err)
	}
	return l
}

func (l *listening) hears(t *testing.T, want backend.Notice) {
	t.Helper()
	select {
	case n := <-l.notices:
		require.Equal(t, want, n)
	case <-time.After(10 * time.Second):
		t.Fatalf("nothing heard; expected %+v", want)
	}
}

func (l *listening) end(t *testing.T) error {
	t.Helper()
	select {
	case err := <-l.ended:
		return err
	case <-time.After(10 * time.Second):
		t.Fatal("Listen did not return")
		return nil
	}
}

// A release sends a notice only if a waiting caller was rejected, because every instance receives each notice.
func TestRelease_Notice(t *testing.T) {
	b, client := shared(t)
	l := listen(t, b)
	d := slots(1)
	ctx := t.Context()
	a, other := lease(d, "a", 1, time.Minute), lease(d, "b", 1, time.Minute)
	require.NoError(t, b.Acquire(ctx, []*backend.LeaseRequest{a}))
	require.NoError(t, b.Acquire(ctx, []*backend.LeaseRequest{other}))
	require.NoError(t, b.Release(ctx, []*backend.LeaseRequest{a})) // no caller waits

	require.NoError(t, client.Publish(ctx, b.names.channel(), "nonsense").Err())
	other.Waiting = true
	require.NoError(t, b.Acquire(ctx, []*backend.LeaseRequest{a, other}))
	require.False(t, other.OK)
	require.NoError(t, b.Release(ctx, []*backend.LeaseRequest{a}))
	l.hears(t, backend.Notice{Name: "slots", Key: "k", Released: true})
	require.NoError(t, b.Release(ctx, []*backend.LeaseRequest{a})) // gives nothing back
	_, err := b.Define(ctx, 0, d)
	require.NoError(t, err)
	l.hears(t, backend.Notice{Name: "slots"})
	require.Empty(t, l.notices)

	l.cancel()
	require.ErrorIs(t, l.end(t), context.Canceled)
}

func TestListen_ConnectionLost(t *testing.T) {
	client := connect(t, testserver.NewRedis(t).URL)
	b := newTestBackend(t, client)
	l := listen(t, b)
	require.NoError(t, client.ClientKillByFilter(t.Context(), "TYPE", "pubsub").Err())
	require.ErrorContains(t, l.end(t), "weirredis: listen: ")
}

func TestListen_SilentServer(t *testing.T) {
	t.Parallel()
	server := testserver.NewRedis(t)
	client := connect(t, server.URL)
	b := newTestBackend(t, client)
	b.silence = time.Second
	l := listen(t, b)
	twice := regexp.MustCompile(`cmdstat_ping:calls=[^1]`)
	answered := func() bool { return twice.MatchString(client.Info(t.Context(), "commandstats").Val()) }
	require.Eventually(t, answered, 30*time.Second, 100*time.Millisecond)
	require.Empty(t, l.ended)
	server.Pause()
	require.Error(t, l.end(t))
	server.Resume()
}

func TestListen_NoServer(t *testing.T) {
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", MaxRetries: -1, DialerRetries: 1})
	defer func() { require.NoError(t, client.Close()) }()
	b := newTestBackend(t, client)
	ready := func() { t.Error("ready without a server") }
	require.ErrorContains(t, b.Listen(t.Context(), ready, nil), "weirredis: listen: ")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, b.Listen(ctx, ready, nil), context.Canceled)
}
