package weirredis

import (
	"testing"
	"time"

	"github.com/weir-go/weir/store/backend"
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

func TestSharedStorm(t *testing.T) {
	s := drillSubject()
	drill.Apart(t, func() {
		place := s.Place(t)
		drill.Storm(t, func() (backend.Backend, func(), error) { return s.Open(place) }, 3*time.Second)
	})
}
