package drill

import (
	"testing"
	"time"
)

// A Server is what a testserver.Server does, but for what it is called.
type Server interface {
	Kill()
	Pause()
	Resume()
	Restart(empty bool) error
}

// A Fault is what keeps a store from answering, and how it ends.
type Fault struct {
	Name       string
	Begin, End func(t testing.TB)
	// LosesData: afterwards the server knows nothing of what was before.
	LosesData bool
	// ErrorText is part of the error.
	ErrorText string
}

const (
	// outageTimeout is the CallTimeout of stores that get into trouble: long enough for a server that works on a
	// machine that is busy with other tests.
	outageTimeout = 300 * time.Millisecond
	probeInterval = 100 * time.Millisecond
)

// Stalled is a drill: the server's processes are stopped where they are.
func Stalled(server Server) Fault {
	return Fault{Name: "stalled", Begin: func(testing.TB) { server.Pause() }, End: func(testing.TB) { server.Resume() }}
}

// Killed is a drill: the server crashes, and is started again. keeps: it has its data then.
func Killed(server Server, keeps bool) Fault {
	return Fault{
		Name:      map[bool]string{true: "killed and back with its data", false: "killed and back empty"}[keeps],
		LosesData: !keeps,
		Begin:     func(testing.TB) { server.Kill() },
		End: func(t testing.TB) {
			if err := server.Restart(false); err != nil {
				t.Fatal(err)
			}
		},
	}
}

// NetworkFaults are those on the way to a server.
func NetworkFaults(network Network) []Fault {
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
