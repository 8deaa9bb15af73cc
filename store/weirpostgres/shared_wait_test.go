package weirpostgres

import (
	"strings"
	"testing"

	"github.com/weir-go/weir/store/internal/drill"
	"github.com/weir-go/weir/tools/testserver"
)

// behindProxy returns two ways to the same fresh place, of which one leads through a proxy.
func behindProxy(t testing.TB, server *testserver.Server) (direct, through string, proxy *testserver.Proxy) {
	t.Helper()
	proxy = testserver.NewProxy(t, server.Addr())
	direct, _ = newPlace(t, server)
	return direct, strings.Replace(direct, server.Addr(), proxy.Addr(), 1), proxy
}

func TestSharedWaiting(t *testing.T) {
	drill.Waiting(t, drillSubject(), func(t testing.TB) (direct, through string, proxy *testserver.Proxy) {
		return behindProxy(t, postgres(t))
	})
}

func TestSharedReconfigure(t *testing.T) { drill.Reconfigured(t, drillSubject()) }

func TestSharedCharges(t *testing.T) { drill.Charges(t, drillSubject()) }

func TestSharedChain(t *testing.T) {
	s := drillSubject()
	drill.RejectedChain(t, s, s.Place(t), s.Place(t))
	_, through, proxy := behindProxy(t, postgres(t))
	drill.LostRefund(t, s, through, proxy)
}
