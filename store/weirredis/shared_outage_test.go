package weirredis

import (
	"context"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/store/internal/drill"
	"github.com/weir-go/weir/tools/testserver"
)

func TestSharedOutages(t *testing.T) {
	drill.Apart(t, func() {
		s := drillSubject()
		server := testserver.NewRedis(t)
		outages(t, s, server.URL, drill.Stalled(server), drill.Killed(server, false))
		if testing.Short() {
			return
		}
		t.Run("the client's own timeouts", func(t *testing.T) {
			usual := s
			usual.Open = openAsUsual
			outages(t, usual, server.URL, drill.Stalled(server))
		})
		keeps := testserver.NewRedis(t, "--appendonly", "yes", "--appendfsync", "always")
		outages(t, s, keeps.URL, drill.Killed(keeps, true))

		_, through, proxy := behindProxy(t, server)
		url, _, _ := strings.Cut(through, " ")
		outages(t, s, url, append(drill.NetworkFaults(proxy), redisFaults(server, proxy)...)...)
		t.Run("cut all the time", func(t *testing.T) { drill.FrequentDisconnects(t, s, through, proxy) })
	})
}

// outages runs stores through faults.
func outages(t *testing.T, s drill.Subject, url string, faults ...drill.Fault) {
	for _, fault := range faults {
		drill.Outage(t, s, placeAt(url), fault)
	}
}

func redisFaults(server *testserver.Server, proxy *testserver.Proxy) []drill.Fault {
	set := func(args ...any) func(t testing.TB) {
		return func(t testing.TB) { require.NoError(t, connect(t, server.URL).Do(context.Background(), args...).Err()) }
	}
	var admin *redis.Client
	return []drill.Fault{
		{
			Name:  "read-only: a replica without its master",
			Begin: set("replicaof", "127.0.0.1", "1"), End: set("replicaof", "no", "one"), ErrorText: "READONLY",
		}, {
			Name:  "read-only: too few replicas",
			Begin: set("config", "set", "min-replicas-to-write", "1"), End: set("config", "set", "min-replicas-to-write", "0"), ErrorText: "NOREPLICAS",
		}, {
			Name: "out of connections",
			Begin: func(t testing.TB) {
				admin = connect(t, server.URL)
				require.NoError(t, admin.ConfigSet(context.Background(), "maxclients", "1").Err())
				proxy.Cut()
			},
			End: func(t testing.TB) {
				require.NoError(t, admin.ConfigSet(context.Background(), "maxclients", "1000").Err())
			},
		},
	}
}
