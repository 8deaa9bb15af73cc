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

// A Trouble is what keeps a store from answering, and how it ends.
type Trouble struct {
	Name       string
	Begin, End func(t testing.TB)
	// Forgets: afterwards the server knows nothing of what was before.
	Forgets bool
	// Says is part of the error.
	Says string
}

const (
	// outageTimeout is the CallTimeout of stores that get into trouble: long enough for a server that works on a
	// machine that is busy with other tests.
	outageTimeout = 300 * time.Millisecond
	probeInterval = 100 * time.Millisecond
)

// Stalled is a drill: the server's processes are stopped where they are.
func Stalled(server Server) Trouble {
	return Trouble{Name: "stalled", Begin: func(testing.TB) { server.Pause() }, End: func(testing.TB) { server.Resume() }}
}

// Killed is a drill: the server crashes, and is started again. keeps: it has its data then.
func Killed(server Server, keeps bool) Trouble {
	return Trouble{
		Name:    map[bool]string{true: "killed and back with its data", false: "killed and back empty"}[keeps],
		Forgets: !keeps,
		Begin:   func(testing.TB) { server.Kill() },
		End: func(t testing.TB) {
			if err := server.Restart(false); err != nil {
				t.Fatal(err)
			}
		},
	}
}

// NetworkTroubles are those on the way to a server.
func NetworkTroubles(network Network) []Trouble {
	return []Trouble{
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
