package weirredis

import (
	"testing"

	"github.com/weir-go/weir/store/internal/drill"
	"github.com/weir-go/weir/tools/testserver"
)

// behindProxy returns two ways to the same fresh place, of which one leads through a proxy.
func behindProxy(t testing.TB, server *testserver.Server) (direct, through string, proxy *testserver.Proxy) {
	t.Helper()
	proxy = testserver.NewProxy(t, server.Addr())
	prefix := freshPrefix()
	return server.URL + " " + prefix, "redis://" + proxy.Addr() + "/0 " + prefix, proxy
}

func TestSharedWaiting(t *testing.T) {
	drill.Waiting(t, drillSubject(), func(t testing.TB) (direct, through string, proxy *testserver.Proxy) {
		return behindProxy(t, testserver.Redis(t))
	})
}

func TestSharedReconfigure(t *testing.T) { drill.Reconfigured(t, drillSubject()) }

func TestSharedCharges(t *testing.T) { drill.Charges(t, drillSubject()) }

func TestSharedChain(t *testing.T) {
	s := drillSubject()
	second := testserver.NewRedis(t)
	drill.RejectedChain(t, s, s.Place(t), placeAt(second.URL))
	_, through, proxy := behindProxy(t, second)
	drill.LostRefund(t, s, through, proxy)
}
