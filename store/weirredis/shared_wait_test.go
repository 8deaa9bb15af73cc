package weirredis

import (
	"testing"

	"github.com/weir-go/weir/internal/testserver"
	"github.com/weir-go/weir/store/internal/drill"
)

// behindProxy returns two ways to the same fresh place, of which one leads through a proxy.
func behindProxy(t testing.TB, server *testserver.Server) (direct, through string, proxy *testserver.Proxy) {
	t.Helper()
	proxy = testserver.NewProxy(t, server.Addr())
	prefix := freshPrefix()
	return server.URL + " " + prefix, "redis://" + proxy.Addr() + "/0 " + prefix, proxy
}

func TestSharedWaiting(t *testing.T) {
	drill.Retried(t, func() {
		s := drillSubject()
		t.Run("listening", func(t *testing.T) { drill.ReleaseWakes(t, s, true) })
		t.Run("polling", func(t *testing.T) { drill.ReleaseWakes(t, s, false) })
		t.Run("without ears", func(t *testing.T) {
			direct, through, proxy := behindProxy(t, testserver.Redis(t))
			drill.PollsWithoutListening(t, s, direct, through, proxy)
		})
		t.Run("many for a bucket", func(t *testing.T) { drill.CallsOfManyWaiters(t, s) })
		t.Run("many for seats", func(t *testing.T) { drill.CallsOfManyHolders(t, s) })
	})
}

func TestSharedReconfigure(t *testing.T) {
	s := drillSubject()
	t.Run("at the next call", func(t *testing.T) { drill.NewLimits(t, s) })
	t.Run("keys, listening", func(t *testing.T) { drill.NewLimitsOfKeys(t, s, true) })
	t.Run("keys, refreshing", func(t *testing.T) { drill.NewLimitsOfKeys(t, s, false) })
}

func TestSharedChain(t *testing.T) {
	s := drillSubject()
	second := testserver.NewRedis(t)
	drill.RejectedChain(t, s, s.Place(t), placeAt(second.URL))
	_, through, proxy := behindProxy(t, second)
	drill.LostRefund(t, s, through, proxy)
}
