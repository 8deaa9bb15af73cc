package weirredis

import (
	"crypto/tls"
	"crypto/x509"
	"net"
	"os"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/backend"
	"github.com/weir-go/weir/tools/testserver"
)

// trusting returns a configuration that trusts one certificate.
func trusting(t testing.TB, certificate string) *tls.Config {
	t.Helper()
	pem, err := os.ReadFile(certificate)
	require.NoError(t, err)
	pool := x509.NewCertPool()
	require.True(t, pool.AppendCertsFromPEM(pem))
	return &tls.Config{RootCAs: pool}
}

func TestBackend_OverTLS(t *testing.T) {
	t.Parallel()
	certificate, key := testserver.Certificate(t)
	other, _ := testserver.Certificate(t)
	port := freePort(t)
	testserver.NewRedis(t, "--tls-port", port, "--tls-cert-file", certificate, "--tls-key-file", key, "--tls-auth-clients", "no")
	open := func(trusted string) *Backend {
		client := redis.NewClient(&redis.Options{
			Addr: net.JoinHostPort("127.0.0.1", port), TLSConfig: trusting(t, trusted), ContextTimeoutEnabled: true, DialerRetries: 1,
		})
		t.Cleanup(func() { _ = client.Close() })
		return newTestBackend(t, client)
	}
	b := open(certificate)
	l := listen(t, b)
	d := slowBucket(10)
	done, err := b.Define(t.Context(), 0, d)
	require.NoError(t, err)
	require.True(t, done)
	l.hears(t, backend.Notice{Name: d.Name})
	require.EqualValues(t, 3, ask(t, b, d, "k", take(3)).State.Missing)
	l.cancel()
	require.Error(t, l.end(t))

	err = open(other).Decide(t.Context(), []*backend.Batch{takeOne(d, "k")})
	require.ErrorAs(t, err, new(*tls.CertificateVerificationError))
}

// A replica that was in step takes over with everything, notices arrive again, and no more than the limit is granted.
func TestStore_SentinelFailsOver(t *testing.T) {
	t.Parallel()
	master := testserver.NewRedis(t, "--repl-diskless-sync-delay", "0")
	host, port, err := net.SplitHostPort(master.Addr())
	require.NoError(t, err)
	testserver.NewRedis(t, "--replicaof", host, port)
	admin := connect(t, master.URL)
	require.Eventually(t, func() bool { return admin.Wait(t.Context(), 1, time.Second).Val() == 1 }, 20*time.Second, time.Millisecond)
	sentinel := testserver.NewSentinel(t, master)
	asked := redis.NewSentinelClient(&redis.Options{Addr: sentinel.Addr()})
	t.Cleanup(func() { _ = asked.Close() })
	require.Eventually(t, func() bool { return len(asked.Replicas(t.Context(), "weir").Val()) == 1 }, 30*time.Second, 10*time.Millisecond)
	client := redis.NewFailoverClient(&redis.FailoverOptions{
		MasterName: "weir", SentinelAddrs: []string{sentinel.Addr()}, ContextTimeoutEnabled: true, DialerRetries: 1,
	})
	t.Cleanup(func() { _ = client.Close() })

	s, err := New(client, &Options{Options: store.Options{ProbeInterval: 100 * time.Millisecond, CallTimeout: 5 * time.Second}})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	l, err := s.FixedWindow("a", limiter.FixedWindowOptions{PermitLimit: 100, Window: 10000 * time.Hour}, nil)
	require.NoError(t, err)
	granted := 0
	grants := func() bool {
		lease, err := l.TryAcquire(t.Context(), 1)
		require.NoError(t, err)
		if lease.Acquired() {
			granted++
		}
		return lease.Acquired()
	}
	for range 60 {
		require.True(t, grants())
	}
	require.Eventually(t, func() bool { return s.Health().Listening }, 30*time.Second, time.Millisecond)
	// WAIT is about the writes of its own connection: the replica that has this one has those before it.
	conn := admin.Conn()
	require.NoError(t, conn.Set(t.Context(), "after the grants", 1, 0).Err())
	require.EqualValues(t, 1, conn.Wait(t.Context(), 1, 30*time.Second).Val())
	require.NoError(t, conn.Close())

	killed := time.Now()
	master.Kill()
	// A call that comes meanwhile is rejected, or waits for the new master: go-redis asks again.
	require.Eventually(t, grants, 30*time.Second, 10*time.Millisecond)
	t.Logf("the new master decides after %v", time.Since(killed))
	require.Eventually(t, func() bool { return s.Health().Err == nil && s.Health().Listening }, 30*time.Second, 10*time.Millisecond)
	for grants() {
	}
	require.LessOrEqual(t, granted, 100)
	require.GreaterOrEqual(t, granted, 97, "calls that ended with the master can have taken a permit")
}
