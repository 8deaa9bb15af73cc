package drill

import (
	"testing"
	"time"

	"github.com/weir-go/weir/tools/testserver"
)

// A Fault keeps a store from answering.
type Fault struct {
	Name       string
	Begin, End func(t testing.TB)
	LosesData  bool   // afterwards the server is empty
	ErrorText  string // part of the error
}

const (
	outageTimeout = 500 * time.Millisecond // by which a fault is noticed that keeps the connections open
	probeInterval = 100 * time.Millisecond
)

// Stalled stops the server's processes.
func Stalled(server *testserver.Server) Fault {
	return Fault{Name: "stalled", Begin: func(testing.TB) { server.Pause() }, End: func(testing.TB) { server.Resume() }}
}

// Killed is a crash of the server and its restart. If keepsData is true, the server has its data after the restart.
func Killed(server *testserver.Server, keepsData bool) Fault {
	return Fault{
		Name:      map[bool]string{true: "killed and back with its data", false: "killed and back empty"}[keepsData],
		LosesData: !keepsData,
		Begin:     func(testing.TB) { server.Kill() },
		End: func(t testing.TB) {
			if err := server.Restart(false); err != nil {
				t.Fatal(err)
			}
		},
	}
}

// NetworkFaults are faults on the way to a server.
func NetworkFaults(network *testserver.Proxy) []Fault {
	return []Fault{
		{
			Name:  "refused",
			Begin: func(testing.TB) { network.Refuse(true); network.Cut() },
			End:   func(testing.TB) { network.Refuse(false) },
		}, {
			Name:  "swallowed",
			Begin: func(testing.TB) { network.Blackhole(true) },
			End:   func(testing.TB) { network.Blackhole(false) },
		}, {
			Name:  "slower than the timeout",
			Begin: func(testing.TB) { network.Delay(outageTimeout) },
			End:   func(testing.TB) { network.Delay(0); network.Cut() },
		},
	}
}
